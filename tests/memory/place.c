/* A history of the test's own, in a directory of its own. */
#include "tests/memory/place.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct place here;

int place_make_empty(void **state)
{
    (void)state;
    here = (struct place){.m = NULL};
    arena_init(&here.a, 1u << 30);
    snprintf(here.dir, sizeof(here.dir), "/tmp/hearth-memory-XXXXXX");
    if (hash_start(&here.e) < 0 || !mkdtemp(here.dir))
        return -1;
    snprintf(here.path, sizeof(here.path), "%s/history.db", here.dir);
    return 0;
}

int place_make(void **state)
{
    if (place_make_empty(state) < 0)
        return -1;
    place_open();
    return 0;
}

int place_remove(void **state)
{
    (void)state;
    place_close();
    arena_done(&here.a);
    DIR *d = opendir(here.dir);
    if (!d)
        return -1;
    for (const struct dirent *f; (f = readdir(d));)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            unlinkat(dirfd(d), f->d_name, 0);
    closedir(d);
    return rmdir(here.dir);
}

void place_open(void)
{
    ASSERT_OK(memory_open(here.path, &here.m, &here.e));
}

void place_close(void)
{
    memory_close(here.m);
    here.m = NULL;
}

void place_reopen(void)
{
    place_close();
    place_open();
}

void place_refused(int code)
{
    struct memory *m = NULL;
    ASSERT_ERR(memory_open(here.path, &m, &here.e), code);
    assert_null(m);
}

struct memory_conversation add_conversation(void)
{
    struct memory_conversation c;
    const struct memory_new_conversation new = {.owner = OWNER};
    ASSERT_OK(memory_conversation_add(here.m, &new, &c, &here.a, &here.e));
    return c;
}

struct memory_message add_message(int64_t conversation, int64_t parent, enum memory_role role,
                                  const char *text)
{
    struct memory_conversation c;
    struct memory_message m;
    ASSERT_OK(memory_conversation_by_row(here.m, conversation, &c, &here.a, &here.e));
    const struct memory_new_message msg = {
        .conversation = conversation,
        .parent = parent < 0 ? c.tip : parent,
        .role = role,
        .text = text,
        .n_text = strlen(text),
        .status = role == MEMORY_ASSISTANT ? MEMORY_COMPLETE : MEMORY_STORED,
        .model = role == MEMORY_ASSISTANT ? "test-model" : NULL,
    };
    ASSERT_OK(memory_message_add(here.m, &msg, &m, &here.a, &here.e));
    return m;
}

struct memory_message begin_answer(int64_t conversation, int64_t parent, const char *model)
{
    struct memory_message m;
    const struct memory_new_message msg = {.conversation = conversation,
                                           .parent = parent,
                                           .role = MEMORY_ASSISTANT,
                                           .text = "",
                                           .status = MEMORY_GENERATING,
                                           .model = model};
    ASSERT_OK(memory_message_add(here.m, &msg, &m, &here.a, &here.e));
    return m;
}

struct memory_conversation get_conversation(const char *id)
{
    struct memory_conversation c;
    ASSERT_OK(memory_conversation_find(here.m, OWNER, id, &c, &here.a, &here.e));
    return c;
}

static const char *joined(const struct memory_message *list, size_t n)
{
    struct buf b;
    buf_init(&b, 1u << 28);
    buf_str(&b, "");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_char(&b, '|');
        buf_add(&b, list[i].text, list[i].n_text);
    }
    const char *s = arena_copy(&here.a, b.data, b.len);
    buf_done(&b);
    return s;
}

const char *path_text(int64_t tip)
{
    struct memory_messages list;
    ASSERT_OK(memory_path(here.m, tip, 100000, &list, &here.a, &here.e));
    return joined(list.v, list.n);
}

const char *page_text(int64_t conversation, const char *after, int limit, bool is_ascending,
                      bool *ret_more)
{
    struct memory_messages list;
    const struct memory_page page = {.after = after, .limit = limit, .is_ascending = is_ascending};
    ASSERT_OK(memory_message_list(here.m, conversation, &page, &list, &here.a, &here.e));
    *ret_more = list.has_more;
    return joined(list.v, list.n);
}

size_t file_get(const char *path, char **ret)
{
    struct stat st;
    *ret = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    assert_int_equal(fstat(fd, &st), 0);
    *ret = malloc((size_t)st.st_size + 1);
    assert_non_null(*ret);
    assert_int_equal(read(fd, *ret, (size_t)st.st_size), st.st_size);
    close(fd);
    return (size_t)st.st_size;
}

void file_put(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), (ssize_t)n);
    close(fd);
}

bool files_hold(const char *word)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    bool is_found = false;
    for (int i = 0; i < 3; i++) {
        char name[128];
        char *bytes;
        snprintf(name, sizeof(name), "%s%s", here.path, suffixes[i]);
        /* Our close drops SQLite's locks of this process; nobody else is there to mind. */
        size_t n = file_get(name, &bytes);
        is_found = is_found || (bytes && memmem(bytes, n, word, strlen(word)));
        free(bytes);
    }
    return is_found;
}

void files_hash(uint8_t ret[HASH_BYTES])
{
    static const char *const suffixes[] = {"", "-wal", "-journal"};
    struct hash_state s;
    hash_init(&s);
    for (int i = 0; i < 3; i++) {
        char name[128];
        char *bytes;
        snprintf(name, sizeof(name), "%s%s", here.path, suffixes[i]);
        size_t n = file_get(name, &bytes);
        hash_add(&s, suffixes[i], strlen(suffixes[i]));
        hash_add(&s, &n, sizeof(n));
        if (bytes)
            hash_add(&s, bytes, n);
        free(bytes);
    }
    hash_end(&s, ret);
}
