/* Roles and mailboxes. Under ThreadSanitizer these are the tests that matter. */
#include "tests/base/testing.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "base/thread.h"

#define N_SENDERS 4
#define N_EACH 5000

struct note {
    struct mail mail; /* kind: the sender */
    int number;
};

struct sender {
    struct mailbox *to;
    int id, n_sent;
};

static struct note *note_new(int kind, int number)
{
    struct note *n = malloc(sizeof(*n));
    assert_non_null(n);
    *n = (struct note){.mail.kind = kind, .number = number};
    return n;
}

/* Sends until all are gone or the box closes. */
static void *send_all(void *arg)
{
    struct sender *s = arg;
    for (int i = 0; i < N_EACH; i++) {
        struct note *n = note_new(s->id, i);
        if (!mailbox_push(s->to, &n->mail)) {
            free(n);
            break;
        }
        s->n_sent++;
    }
    return NULL;
}

/* Takes what waits; checks each sender's order; returns how many. */
static int receive(struct mailbox *box, int next[N_SENDERS])
{
    int n = 0;
    struct mail *after;
    for (struct mail *m = mailbox_take(box); m; m = after) {
        after = m->next;
        struct note *note = (struct note *)m;
        assert_int_equal(note->number, next[m->kind]);
        next[m->kind]++;
        free(note);
        n++;
    }
    return n;
}

static void start_senders(struct mailbox *box, struct sender *s, pthread_t *threads)
{
    struct err e;
    for (int i = 0; i < N_SENDERS; i++) {
        s[i] = (struct sender){.to = box, .id = i};
        assert_int_equal(thread_start(&threads[i], THREAD_POOL, send_all, &s[i], &e), 0);
    }
}

static void without_any_role_every_door_is_open(void **state)
{
    (void)state;
    assert_true(thread_is(THREAD_LOOP));
    assert_true(thread_is(THREAD_NONE));
}

static void *say_role(void *arg)
{
    bool *is_worker = arg;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof(name));
    *is_worker = thread_is(THREAD_WORKER) && !thread_is(THREAD_LOOP) &&
                 sigismember(&set, SIGTERM) && strcmp(name, "hearth-worker") == 0;
    return NULL;
}

static void a_thread_has_its_role_its_name_and_no_signals(void **state)
{
    (void)state;
    bool is_worker = false;
    pthread_t t;
    struct err e;
    assert_int_equal(thread_start(&t, THREAD_WORKER, say_role, &is_worker, &e), 0);
    pthread_join(t, NULL);
    assert_true(is_worker);
    assert_false(thread_is(THREAD_WORKER)); /* roles exist now, and we have none */
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_false(sigismember(&set, SIGTERM));
    char before[16], after[16];
    pthread_getname_np(pthread_self(), before, sizeof(before));
    thread_set_role(THREAD_LOOP);
    pthread_getname_np(pthread_self(), after, sizeof(after));
    assert_string_equal(before, after); /* the process keeps its name */
    assert_true(thread_is(THREAD_LOOP));
}

static void a_thread_without_memory_is_an_error(void **state)
{
    (void)state;
    pthread_t t;
    struct err e;
    fault_memory(0);
    int rc = thread_start(&t, THREAD_WORKER, say_role, NULL, &e);
    assert_true(fault_end());
    assert_int_equal(rc, ERR_NOMEM);
}

static void many_senders_lose_nothing_and_keep_their_order(void **state)
{
    (void)state;
    struct mailbox box;
    struct err e;
    struct sender senders[N_SENDERS];
    pthread_t threads[N_SENDERS];
    int next[N_SENDERS] = {0}, n = 0;
    assert_int_equal(mailbox_init(&box, &e), 0);
    start_senders(&box, senders, threads);
    while (n < N_SENDERS * N_EACH) {
        mailbox_wait(&box, -1);
        n += receive(&box, next);
    }
    for (int i = 0; i < N_SENDERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(next[i], N_EACH);
    }
    assert_null(mailbox_take(&box));
    mailbox_done(&box);
}

static void an_owner_that_polls_the_descriptor_is_woken_for_each_message(void **state)
{
    (void)state;
    struct mailbox box;
    struct err e;
    struct sender senders[N_SENDERS];
    pthread_t threads[N_SENDERS];
    int next[N_SENDERS] = {0}, n = 0;
    assert_int_equal(mailbox_init(&box, &e), 0);
    start_senders(&box, senders, threads);
    while (n < N_SENDERS * N_EACH) {
        struct pollfd p = {.fd = box.fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, -1), 1);
        n += receive(&box, next);
    }
    for (int i = 0; i < N_SENDERS; i++)
        pthread_join(threads[i], NULL);
    mailbox_done(&box);
}

static void closing_refuses_and_leaves_the_message_with_its_sender(void **state)
{
    (void)state;
    struct mailbox box;
    struct err e;
    struct sender senders[N_SENDERS];
    pthread_t threads[N_SENDERS];
    int next[N_SENDERS] = {0}, n_sent = 0;
    assert_int_equal(mailbox_init(&box, &e), 0);
    start_senders(&box, senders, threads);
    mailbox_wait(&box, -1);
    int n = receive(&box, next);
    mailbox_close(&box);
    for (int i = 0; i < N_SENDERS; i++) {
        pthread_join(threads[i], NULL);
        n_sent += senders[i].n_sent;
    }
    n += receive(&box, next); /* what came in before the close is still there */
    assert_int_equal(n, n_sent);
    struct note late = {.number = 0};
    assert_false(mailbox_push(&box, &late.mail));
    mailbox_wait(&box, -1); /* closed: returns at once, each time */
    assert_null(mailbox_take(&box));
    mailbox_wait(&box, -1);
    mailbox_done(&box);
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void the_descriptor_is_readable_while_mail_waits(void **state)
{
    (void)state;
    struct mailbox box;
    struct err e;
    struct note a = {.number = 1}, b = {.number = 2};
    assert_int_equal(mailbox_init(&box, &e), 0);
    assert_false(is_readable(box.fd));
    assert_null(mailbox_take(&box)); /* never blocks */
    assert_true(mailbox_push(&box, &a.mail));
    assert_true(mailbox_push(&box, &b.mail));
    assert_true(is_readable(box.fd));
    struct mail *list = mailbox_take(&box);
    assert_ptr_equal(list, &a.mail);
    assert_ptr_equal(list->next, &b.mail);
    assert_null(list->next->next);
    assert_false(is_readable(box.fd));
    mailbox_wait(&box, 0); /* nothing waits: the limit ends it */
    mailbox_wait(&box, 1);
    mailbox_done(&box);
}

static void *close_box(void *arg)
{
    mailbox_close(arg);
    return NULL;
}

static void a_close_wakes_the_owner(void **state)
{
    (void)state;
    struct mailbox box;
    struct err e;
    pthread_t t;
    assert_int_equal(mailbox_init(&box, &e), 0);
    assert_int_equal(thread_start(&t, THREAD_DISK, close_box, &box, &e), 0);
    mailbox_wait(&box, -1);
    pthread_join(t, NULL);
    mailbox_done(&box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_any_role_every_door_is_open),
        cmocka_unit_test(a_thread_has_its_role_its_name_and_no_signals),
        cmocka_unit_test(a_thread_without_memory_is_an_error),
        cmocka_unit_test(many_senders_lose_nothing_and_keep_their_order),
        cmocka_unit_test(an_owner_that_polls_the_descriptor_is_woken_for_each_message),
        cmocka_unit_test(closing_refuses_and_leaves_the_message_with_its_sender),
        cmocka_unit_test(the_descriptor_is_readable_while_mail_waits),
        cmocka_unit_test(a_close_wakes_the_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
