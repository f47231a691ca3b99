/* Opening: what is refused, and that a refusal leaves the bytes alone; migrations. */
#include "tests/memory/place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/db.h"
#include "memory/migrate.h"
#include "memory/schema.h"

static mode_t mode_of(const char *suffix)
{
    char name[160];
    struct stat st;
    snprintf(name, sizeof(name), "%s%s", here.path, suffix);
    assert_int_equal(stat(name, &st), 0);
    return st.st_mode & 07777;
}

static void files_are_private_from_the_start(void **state)
{
    (void)state;
    mode_t old = umask(0);
    place_open();
    add_conversation();
    assert_int_equal(mode_of(""), 0600);
    assert_int_equal(mode_of("-wal"), 0600);
    assert_int_equal(mode_of("-shm"), 0600);
    umask(old);
}

static void a_readable_file_is_made_private(void **state)
{
    (void)state; /* B73 */
    place_open();
    add_conversation();
    place_close();
    assert_int_equal(chmod(here.path, 0644), 0);
    place_open();
    add_conversation();
    assert_int_equal(mode_of(""), 0600);
    assert_int_equal(mode_of("-wal"), 0600);
}

static void a_link_leads_to_the_file(void **state)
{
    (void)state; /* B73 */
    char target[160];
    snprintf(target, sizeof(target), "%s/elsewhere.db", here.dir);
    assert_int_equal(symlink(target, here.path), 0);
    place_refused(ERR_IO); /* to nowhere: nothing is made at the other end */
    assert_int_equal(access(target, F_OK), -1);
    file_put(target, "", 0);
    place_open();
    struct memory_conversation c = add_conversation();
    place_reopen();
    get_conversation(c.id);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir(here.path, 0700), 0);
    place_refused(ERR_INVAL);
    assert_int_equal(rmdir(here.path), 0);
    assert_int_equal(mkfifo(here.path, 0600), 0);
    place_refused(ERR_INVAL);
}

static void a_missing_directory_is_an_error(void **state)
{
    (void)state;
    char good[96];
    memcpy(good, here.path, sizeof(good));
    snprintf(here.path, sizeof(here.path), "%s/no/history.db", here.dir);
    place_refused(ERR_IO);
    memcpy(here.path, good, sizeof(good));
}

/* A refusal, with the bytes the same before and after. */
static void refused_untouched(int code)
{
    uint8_t before[HASH_BYTES], after[HASH_BYTES];
    files_hash(before);
    place_refused(code);
    files_hash(after);
    assert_memory_equal(before, after, HASH_BYTES);
}

/* Some content, and the database closed. */
static void fill(void)
{
    place_open();
    struct memory_conversation c = add_conversation();
    for (int i = 0; i < 50; i++)
        add_message(c.row, -1, MEMORY_USER, "some text that takes room in the file");
    place_close();
}

/* Runs SQL in a child that then dies, so that what it wrote stays in the -wal. */
static void leave_in_wal(const char *sql)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct db *db;
        struct err e;
        if (db_open(here.path, &db, &e) < 0 || db_exec(db, sql, &e) < 0)
            _exit(1);
        _exit(0); /* without closing */
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void a_newer_database_is_refused_untouched(void **state)
{
    (void)state;
    struct db *db;
    fill();
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_accept(db, &here.e));
    ASSERT_OK(db_exec(db, "PRAGMA user_version = 99", &here.e));
    db_close(db);
    refused_untouched(ERR_UNSUPPORTED);
    assert_non_null(strstr(here.e.text, "99"));
}

static void a_version_that_is_only_in_the_wal_counts(void **state)
{
    (void)state;
    fill();
    leave_in_wal("PRAGMA user_version = 99");
    refused_untouched(ERR_UNSUPPORTED);
    assert_non_null(strstr(here.e.text, "99"));
}

static void a_foreign_database_is_refused_untouched(void **state)
{
    (void)state;
    static const char *const kinds[] = {
        "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)",
        "PRAGMA application_id = 42; CREATE TABLE theirs (x)",
        "PRAGMA user_version = 1; CREATE TABLE conversation (x)",
        "PRAGMA journal_mode = WAL; CREATE TABLE theirs (x)",
        "PRAGMA journal_mode = WAL; PRAGMA user_version = 7",
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        file_put(here.path, "", 0);
        leave_in_wal(kinds[i]);
        refused_untouched(ERR_UNSUPPORTED);
        char wal[160];
        snprintf(wal, sizeof(wal), "%s-wal", here.path);
        unlink(wal);
        snprintf(wal, sizeof(wal), "%s-shm", here.path);
        unlink(wal);
    }
}

static void a_damaged_database_is_refused_untouched(void **state)
{
    (void)state;
    char *good;
    fill();
    size_t n = file_get(here.path, &good);
    assert_true(n > 8192);
    file_put(here.path, "this is not a database at all, but a text\n", 42);
    refused_untouched(ERR_CORRUPT);
    file_put(here.path, good, 60); /* not even a header */
    refused_untouched(ERR_CORRUPT);
    file_put(here.path, good, n / 2); /* shorter than it says */
    refused_untouched(ERR_CORRUPT);
    file_put(here.path, good, 4096);
    refused_untouched(ERR_CORRUPT);
    char *bad = malloc(n);
    assert_non_null(bad);
    memcpy(bad, good, n);
    memset(bad + 100, 0xAB, 3996); /* the schema's page, the header whole */
    file_put(here.path, bad, n);
    refused_untouched(ERR_CORRUPT);
    memcpy(bad, good, n);
    memset(bad + 16, 0, 84); /* page size 0 */
    bad[68] = 'H', bad[69] = 'r', bad[70] = 't', bad[71] = 'h', bad[63] = 1;
    file_put(here.path, bad, n);
    refused_untouched(ERR_CORRUPT);
    file_put(here.path, good, n); /* and the good bytes still open */
    place_open();
    free(good);
    free(bad);
}

/* Any page's beginning, and bytes all over the file but its first page. */
static void damage_inside_is_refused_untouched(void **state)
{
    (void)state;
    char *good;
    struct db *db;
    fill();
    /* No free pages: nothing on them is missed, so that nothing on them is damage. */
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_exec(db, "VACUUM", &here.e));
    db_close(db);
    place_open(); /* closing takes it out of the -wal */
    place_close();
    size_t n = file_get(here.path, &good);
    char *bad = malloc(n);
    assert_non_null(bad);
    for (size_t at = 4096; at + 4096 <= n; at += 4096) {
        memcpy(bad, good, n);
        memset(bad + at, 0x5A, 64);
        file_put(here.path, bad, n);
        refused_untouched(ERR_CORRUPT);
    }
    memcpy(bad, good, n);
    for (size_t at = 4096; at < n; at += 97)
        bad[at] ^= 0x7F;
    file_put(here.path, bad, n);
    refused_untouched(ERR_CORRUPT);
    free(good);
    free(bad);
}

static void a_start_that_was_killed_early_is_no_obstacle(void **state)
{
    (void)state;
    file_put(here.path, "", 0);
    place_open();
    place_close();
    unlink(here.path);
    file_put(here.path, "", 0);
    leave_in_wal("PRAGMA journal_mode = WAL");
    place_open();
    add_conversation();
}

/* Today's program, and one or two steps more. */
static int open_with(const char *last, struct db **ret)
{
    const char *steps[SCHEMA_VERSION + 2];
    const struct migrate_plan plan = {.steps = steps, .n_steps = SCHEMA_VERSION + (last ? 2 : 1)};
    memcpy(steps, schema_steps, sizeof(schema_steps));
    steps[SCHEMA_VERSION] =
        "CREATE TABLE extra (x TEXT) STRICT; INSERT INTO extra SELECT id FROM conversation;";
    steps[SCHEMA_VERSION + 1] = last;
    return migrate_open(here.path, &plan, ret, &here.e);
}

static void migration_keeps_a_copy_and_the_content(void **state)
{
    (void)state;
    struct db *db;
    char copy[160];
    int64_t n;
    struct stat st;
    fill();
    ASSERT_OK(open_with(NULL, &db));
    ASSERT_OK(db_get_int(db, "PRAGMA user_version", &n, &here.e));
    assert_int_equal(n, SCHEMA_VERSION + 1);
    ASSERT_OK(db_get_int(db, "SELECT count(*) FROM extra", &n, &here.e));
    assert_int_equal(n, 1);
    db_close(db);
    snprintf(copy, sizeof(copy), "%s.v%d", here.path, SCHEMA_VERSION);
    assert_int_equal(stat(copy, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    refused_untouched(ERR_UNSUPPORTED); /* this program knows one version less */
    memcpy(here.path, copy, strlen(copy) + 1);
    place_open();
    struct memory_totals totals;
    ASSERT_OK(memory_totals(here.m, &totals, &here.e));
    assert_int_equal(totals.n_messages, 50);
    place_close();
}

static void a_step_that_fails_changes_nothing(void **state)
{
    (void)state;
    struct db *db = NULL;
    int64_t n;
    fill();
    assert_true(open_with("CREATE TABLE more (x); INSERT INTO nowhere VALUES (1);", &db) < 0);
    assert_null(db);
    char version[32];
    snprintf(version, sizeof(version), "version %d", SCHEMA_VERSION + 2);
    assert_non_null(strstr(here.e.text, version));
    ASSERT_OK(db_open(here.path, &db, &here.e));
    ASSERT_OK(db_get_int(db, "PRAGMA user_version", &n, &here.e));
    assert_int_equal(n, SCHEMA_VERSION + 1); /* the step before it stands */
    ASSERT_OK(
        db_get_int(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'more'", &n, &here.e));
    assert_int_equal(n, 0);
    db_close(db);
    ASSERT_OK(open_with("CREATE TABLE more (x);", &db)); /* mended */
    db_close(db);
}

/* What version 1 wrote is there, and takes what is new. */
static void a_history_of_version_1_goes_on(void **state)
{
    (void)state;
    const struct migrate_plan first = {.steps = schema_steps, .n_steps = 1};
    struct db *db;
    ASSERT_OK(migrate_open(here.path, &first, &db, &here.e));
    ASSERT_OK(db_exec(db,
                      "INSERT INTO conversation (id, owner, activity, created_at, updated_at)"
                      " VALUES ('conv_old', '" OWNER "', 1, 2, 3);"
                      "INSERT INTO message (id, conversation, role, status, created_at, text)"
                      " VALUES ('msg_old', 1, 2, 0, 2, 'an old question')",
                      &here.e));
    db_close(db);
    place_open();
    struct memory_conversation c = get_conversation("conv_old");
    assert_int_equal(c.n_messages, 1);
    assert_string_equal(path_text(c.tip), "an old question");
    struct memory_message question;
    ASSERT_OK(memory_message_find(here.m, OWNER, "msg_old", &question, &here.a, &here.e));
    assert_false(question.is_opened);
    uint8_t block[HASH_BYTES] = {9};
    struct memory_message answer = begin_answer(c.row, c.tip, "m");
    const struct memory_answer end = {
        .row = answer.row, .status = MEMORY_COMPLETE, .blocks = block, .n_blocks = 1};
    struct memory_removed gone;
    ASSERT_OK(memory_answer_end(here.m, &end, &here.e));
    ASSERT_OK(memory_conversation_remove(here.m, OWNER, "conv_old", &gone, &here.e));
    assert_int_equal(gone.n_messages, 2);
    assert_int_equal(gone.n_blocks, 1);
    free(gone.blocks);
}

static void every_past_version_opens(void **state)
{
    (void)state;
    struct db *db;
    int64_t n;
    for (int v = 1; v <= SCHEMA_VERSION; v++) {
        const struct migrate_plan old = {.steps = schema_steps, .n_steps = v};
        unlink(here.path);
        ASSERT_OK(migrate_open(here.path, &old, &db, &here.e));
        db_close(db);
        place_open();
        add_conversation();
        place_close();
        ASSERT_OK(db_open(here.path, &db, &here.e));
        ASSERT_OK(db_get_int(db, "PRAGMA user_version", &n, &here.e));
        assert_int_equal(n, SCHEMA_VERSION);
        db_close(db);
    }
}

/* As nobody, whom modes bind. The child's exit code is what memory_open gave. */
static int open_as_nobody(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct memory *m;
        struct err e = {0};
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(99);
        int rc = memory_open(here.path, &m, &e);
        _exit(rc < 0 && e.text[0] ? -rc : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void what_can_not_be_written_is_refused(void **state)
{
    (void)state;
    uid_t nobody = geteuid() == 0 ? 65534 : geteuid();
    uint8_t before[HASH_BYTES], after[HASH_BYTES];
    fill();
    assert_int_equal(chown(here.dir, nobody, (gid_t)-1), 0);
    if (geteuid() == 0)
        assert_int_equal(open_as_nobody(), ERR_INVAL); /* root's file */
    assert_int_equal(chown(here.path, nobody, (gid_t)-1), 0);
    assert_int_equal(chmod(here.path, 0400), 0);
    files_hash(before);
    assert_int_equal(open_as_nobody(), ERR_IO);
    assert_int_equal(chmod(here.path, 0600), 0);
    assert_int_equal(chmod(here.dir, 0500), 0); /* no -wal can be made */
    assert_int_equal(open_as_nobody(), ERR_IO);
    files_hash(after);
    assert_memory_equal(before, after, HASH_BYTES);
    assert_int_equal(chmod(here.dir, 0700), 0);
    assert_int_equal(open_as_nobody(), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make_empty, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_are_private_from_the_start),
        TEST(a_readable_file_is_made_private),
        TEST(a_link_leads_to_the_file),
        TEST(what_is_no_file_is_refused),
        TEST(a_missing_directory_is_an_error),
        TEST(a_newer_database_is_refused_untouched),
        TEST(a_version_that_is_only_in_the_wal_counts),
        TEST(a_foreign_database_is_refused_untouched),
        TEST(a_damaged_database_is_refused_untouched),
        TEST(damage_inside_is_refused_untouched),
        TEST(a_start_that_was_killed_early_is_no_obstacle),
        TEST(migration_keeps_a_copy_and_the_content),
        TEST(a_step_that_fails_changes_nothing),
        TEST(a_history_of_version_1_goes_on),
        TEST(every_past_version_opens),
        TEST(what_can_not_be_written_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
