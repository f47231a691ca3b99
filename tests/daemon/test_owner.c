/* Owners: who a peer is, the key file, and which Hosts are loopback. */
#include "tests/base/testing.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "daemon/owner.h"

#define KEY_A "0123456789abcdef"
#define KEY_B "fedcba9876543210"

static void a_private_socket_is_its_own_users_only(void **state)
{
    (void)state;
    char owner[OWNER_BYTES] = "";
    struct err e = {0};
    assert_int_equal(owner_of_uid(1000, 1000, 0600, owner, &e), 0);
    assert_string_equal(owner, "uid:1000");
    assert_int_equal(owner_of_uid(1001, 1000, 0600, owner, &e), ERR_INVAL);
    assert_non_null(strstr(e.text, "1001"));
    assert_int_equal(owner_of_uid(0, 1000, 0600, owner, &e),
                     ERR_INVAL);            /* root is owner 0, not everyone */
    assert_string_equal(owner, "uid:1000"); /* untouched */
}

static void a_group_socket_keeps_owners_apart(void **state)
{
    (void)state;
    char owner[OWNER_BYTES] = "";
    assert_int_equal(owner_of_uid(1001, 990, 0660, owner, NULL), 0);
    assert_string_equal(owner, "uid:1001");
    assert_int_equal(owner_of_uid(0, 990, 0660, owner, NULL), 0);
    assert_string_equal(owner, "uid:0");
}

static void peers_without_identity_are_refused(void **state)
{
    (void)state;
    char owner[OWNER_BYTES] = "";
    assert_int_equal(owner_of_uid(65534, 990, 0660, owner, NULL), ERR_INVAL);
    assert_int_equal(owner_of_uid((uid_t)-1, 990, 0660, owner, NULL), ERR_INVAL);
    assert_int_equal(owner_of_uid(65534, 65534, 0600, owner, NULL), ERR_INVAL);
}

static void a_socketpairs_peer_is_ourselves(void **state)
{
    (void)state;
    int fd[2];
    char owner[OWNER_BYTES], wants[OWNER_BYTES];
    uid_t uid = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(owner_of_socket(fd[0], 0600, &uid, owner, NULL), 0);
    snprintf(wants, sizeof(wants), "uid:%lu", (unsigned long)geteuid());
    assert_string_equal(owner, wants);
    close(fd[0]);
    close(fd[1]);
}

static void keys_name_their_owner(void **state)
{
    (void)state;
    static const char text[] =
        "# comment\n\nann:" KEY_A "\r\nbob.2:" KEY_B ":with:colons  \nann:another-key-of-ann-1\n";
    struct keys *k = NULL;
    struct err e = {0};
    char owner[OWNER_BYTES] = "";
    assert_int_equal(keys_parse("f", text, strlen(text), &k, &e), 0);
    assert_true(keys_find(k, "Bearer " KEY_A, owner));
    assert_string_equal(owner, "key:ann");
    assert_true(keys_find(k, "bearer  " KEY_B ":with:colons", owner));
    assert_string_equal(owner, "key:bob.2");
    assert_true(keys_find(k, "Bearer another-key-of-ann-1", owner)); /* rotated: the same owner */
    assert_string_equal(owner, "key:ann");
    static const char *const no[] = {"",
                                     "Bearer ",
                                     "Bearer x",
                                     "Basic " KEY_A,
                                     KEY_A,
                                     "Bearer " KEY_A "x",
                                     "Bearer 0123456789abcde"};
    for (size_t i = 0; i < ARRAY_LEN(no); i++)
        assert_false(keys_find(k, no[i], owner));
    assert_false(keys_find(k, NULL, owner));
    assert_string_equal(owner, "key:ann");
    keys_free(k);
    keys_free(NULL);
}

static void bad_key_files_are_refused_by_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "no key"},
        {"# nothing\n", "no key"},
        {"ann:" KEY_A "\nnocolon\n", "line 2"},
        {":" KEY_A, "line 1"},
        {"a b:" KEY_A, "letters"},
        {"ann:short", "16"},
        {"ann:0123456789abc def", "visible"},
        {"ann:" KEY_A "\nbob:" KEY_A, "ann"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct keys *k = NULL;
        struct err e = {0};
        assert_int_equal(keys_parse("FILE", bad[i].text, strlen(bad[i].text), &k, &e), ERR_INVAL);
        assert_null(k);
        assert_non_null(strstr(e.text, "FILE"));
        if (!strstr(e.text, bad[i].says))
            print_message("%s\n", e.text);
        assert_non_null(strstr(e.text, bad[i].says));
        assert_null(strstr(e.text, "0123456789abc def")); /* no key in a log */
    }
}

static void a_key_file_that_others_can_read_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/hearth-keys-XXXXXX";
    int fd = mkstemp(path);
    struct keys *k = NULL;
    struct err e = {0};
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "ann:" KEY_A "\n", 21), 21);
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(keys_read(path, &k, &e), ERR_INVAL);
    assert_non_null(strstr(e.text, "0640"));
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(keys_read(path, &k, &e), 0);
    keys_free(k);
    close(fd);
    unlink(path);
    assert_true(keys_read(path, &k, &e) < 0);
    assert_int_equal(keys_read("/tmp", &k, &e), ERR_INVAL);
}

static void only_loopback_hosts_pass(void **state)
{
    (void)state;
    static const char *const yes[] = {"localhost",      "LocalHost:80",  "127.0.0.1",
                                      "127.0.0.1:8080", "127.255.0.9:1", "[::1]",
                                      "[::1]:8080",     "localhost:"};
    static const char *const no[] = {"",
                                     "example.com",
                                     "localhost.example.com",
                                     "127.0.0.1.example.com",
                                     "128.0.0.1",
                                     "127.0.0",
                                     "127.0.0.1.1",
                                     "127.0.0.256",
                                     "127..0.1",
                                     "[::2]",
                                     "[::1",
                                     "[::1]x",
                                     "::1",
                                     "localhost:80x",
                                     "localhost:80:90",
                                     "0.0.0.0",
                                     "1270.0.0.1",
                                     "127.0.0.1."};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++)
        if (!owner_host_is_loopback(yes[i]))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < ARRAY_LEN(no); i++)
        if (owner_host_is_loopback(no[i]))
            fail_msg("%s", no[i]);
}

static int set_up(void **state)
{
    (void)state;
    return hash_start(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_private_socket_is_its_own_users_only),
        cmocka_unit_test(a_group_socket_keeps_owners_apart),
        cmocka_unit_test(peers_without_identity_are_refused),
        cmocka_unit_test(a_socketpairs_peer_is_ourselves),
        cmocka_unit_test(keys_name_their_owner),
        cmocka_unit_test(bad_key_files_are_refused_by_line),
        cmocka_unit_test(a_key_file_that_others_can_read_is_refused),
        cmocka_unit_test(only_loopback_hosts_pass),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
