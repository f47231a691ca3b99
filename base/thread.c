/*
 * Thread roles and mailboxes.
 *
 * The eventfd is written under the mutex, when the list becomes non-empty, and read by the owner
 * before it locks: what was pushed before the read is then in the list that is taken, and what
 * comes after it writes again. So the descriptor may be readable with nothing waiting (the owner
 * takes NULL), but never the other way round.
 */
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"

static _Thread_local enum thread_role own_role = THREAD_NONE;
static atomic_bool has_roles;

static const char *const role_names[] = {
    [THREAD_NONE] = "hearth",
    [THREAD_LOOP] = "hearth-loop",
    [THREAD_HISTORY] = "hearth-history",
    [THREAD_WORKER] = "hearth-worker",
    [THREAD_DISK] = "hearth-disk",
    [THREAD_POOL] = "hearth-pool",
    [THREAD_EMBEDDER] = "hearth-embed",
    [THREAD_LOADER] = "hearth-loader",
};

void thread_set_role(enum thread_role role)
{
    own_role = role;
    /* The compute pool doesn't make a program one that has roles: offline commands and tests run
     * an engine, too. */
    if (role != THREAD_NONE && role != THREAD_POOL)
        atomic_store(&has_roles, true);
    /* The main thread's name is the process's: it stays the program's. */
    if (gettid() != getpid())
        pthread_setname_np(pthread_self(), role_names[role]);
}

bool thread_is(enum thread_role role)
{
    return own_role == role || (role == THREAD_WORKER && own_role == THREAD_LOADER) ||
           !atomic_load(&has_roles);
}

struct start {
    enum thread_role role;
    void *(*run)(void *);
    void *arg;
};

static void *begin(void *p)
{
    struct start s = *(struct start *)p;
    free(p);
    thread_set_role(s.role);
    return s.run(s.arg);
}

int thread_start(pthread_t *ret, enum thread_role role, void *(*run)(void *), void *arg,
                 struct err *e)
{
    struct start *s = sys.malloc(sizeof(*s));
    if (!s)
        return err_set(e, ERR_NOMEM, "thread %s: out of memory", role_names[role]);
    *s = (struct start){.role = role, .run = run, .arg = arg};

    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, begin, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        free(s);
        return err_sys(e, rc, "thread %s can't start", role_names[role]);
    }
    *ret = thread;
    return 0;
}

int mailbox_init(struct mailbox *m, struct err *e)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "eventfd for a mailbox");
    *m = (struct mailbox){.fd = fd};
    m->tail = &m->head;
    pthread_mutex_init(&m->lock, NULL); /* can't fail with default attributes */
    return 0;
}

void mailbox_done(struct mailbox *m)
{
    assert(!m->head);
    close(m->fd);
    m->fd = -1;
    pthread_mutex_destroy(&m->lock);
}

static void wake(struct mailbox *m)
{
    uint64_t one = 1;
    ssize_t n;
    /* EAGAIN would mean that the counter is full, and then it is readable already. */
    do
        n = write(m->fd, &one, sizeof(one));
    while (n < 0 && errno == EINTR);
}

static void drain(struct mailbox *m)
{
    uint64_t count;
    ssize_t n;
    do
        n = read(m->fd, &count, sizeof(count));
    while (n < 0 && errno == EINTR);
}

bool mailbox_push(struct mailbox *m, struct mail *mail)
{
    mail->next = NULL;
    pthread_mutex_lock(&m->lock);
    bool is_open = !m->is_closed;
    if (is_open) {
        bool was_empty = !m->head;
        *m->tail = mail;
        m->tail = &mail->next;
        if (was_empty)
            wake(m);
    }
    pthread_mutex_unlock(&m->lock);
    return is_open;
}

struct mail *mailbox_take(struct mailbox *m)
{
    drain(m);
    pthread_mutex_lock(&m->lock);
    struct mail *list = m->head;
    m->head = NULL;
    m->tail = &m->head;
    pthread_mutex_unlock(&m->lock);
    return list;
}

static bool is_ready(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    bool ready = m->head || m->is_closed;
    pthread_mutex_unlock(&m->lock);
    return ready;
}

void mailbox_wait(struct mailbox *m, int timeout_ms)
{
    int64_t until = clock_ms() + timeout_ms;
    int left = timeout_ms;
    while (!is_ready(m)) {
        struct pollfd p = {.fd = m->fd, .events = POLLIN};
        /* Readable may be left over from a take. Drained before is_ready looks again, so no wake is
         * lost. */
        if (poll(&p, 1, left) > 0)
            drain(m);
        if (timeout_ms < 0)
            continue;
        int64_t now = clock_ms();
        if (now >= until)
            return;
        left = (int)(until - now);
    }
}

void mailbox_close(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    m->is_closed = true;
    wake(m);
    pthread_mutex_unlock(&m->lock);
}
