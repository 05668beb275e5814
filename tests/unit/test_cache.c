/* SPDX-License-Identifier: Apache-2.0 */

/* The compile cache: keys, entries on disk, damage, many writers, eviction, writers that die.
 */

#include "runtime_fixture.h"
#include "test.h"

#include "base/buf.h"
#include "base/log.h"
#include "run/cache/cache.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { MB = 1 << 20 };

static char *state;

static int set_up(void **context)
{
    (void)context;
    state = fixture_make_dir();
    return 0;
}

static int tear_down(void **context)
{
    (void)context;
    fixture_remove_dir(&state);
    state = NULL;
    return 0;
}

static struct cache *open_cache(uint64_t max_bytes)
{
    struct cache *cache = NULL;
    struct err err = {0};
    const struct cache_settings settings = {.max_bytes = max_bytes};

    assert_int_equal(cache_open(&cache, &settings, state, &err), 0);
    return cache;
}

static struct cache_key key_of(unsigned number)
{
    struct cache_key key = {0};

    memcpy(key.bytes + 1, &number, sizeof(number));
    key.bytes[0] = (uint8_t)(number * 37);
    return key;
}

static char *path_of(const struct cache_key *key)
{
    char hex[2 * CACHE_KEY_SIZE + 1];

    for (size_t i = 0; i < CACHE_KEY_SIZE; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", key->bytes[i]);
    return xasprintf("%s/cache/%.2s/%s", state, hex, hex);
}

/* Bytes that tell their number, so that a mixture would be seen. */
static void put(struct cache *cache, unsigned number, size_t size)
{
    struct cache_key key = key_of(number);
    struct cache_entry entry = {.out = "out", .out_len = 3, .err = "warning: x", .err_len = 10};
    char *bytes = xmalloc(size + 1);

    memset(bytes, (int)(number % 251), size);
    run_files_add(&entry.files, "main", bytes, size, true);
    run_files_add(&entry.files, "dir/data", memcpy(xmalloc(3), "a\0b", 3), 3, false);
    cache_put(cache, &key, NULL, &entry);
    run_files_done(&entry.files);
}

enum { DAMAGED = -1, MISSING, WHOLE };

static bool is_whole(const struct cache_entry *entry, unsigned number)
{
    const struct run_file *files = entry->files.items;

    if (entry->files.count != 2 || entry->out_len != 3 || entry->err_len != 10 ||
        memcmp(entry->out, "out", 3) != 0 || memcmp(entry->err, "warning: x", 10) != 0 ||
        strcmp(files[0].name, "main") != 0 || strcmp(files[1].name, "dir/data") != 0 ||
        !files[0].executable || files[1].executable || files[1].size != 3 ||
        memcmp(files[1].content, "a\0b", 3) != 0)
        return false;
    for (size_t i = 0; i < files[0].size; i++) {
        if ((unsigned char)files[0].content[i] != number % 251)
            return false;
    }
    return true;
}

static int look(struct cache *cache, unsigned number)
{
    struct cache_key key = key_of(number);
    struct cache_entry entry;

    if (cache_get(cache, &key, NULL, &entry) < 0)
        return MISSING;
    int found = is_whole(&entry, number) ? WHOLE : DAMAGED;
    cache_entry_done(&entry);
    return found;
}

static bool get(struct cache *cache, unsigned number)
{
    int found = look(cache, number);

    assert_int_not_equal(found, DAMAGED);
    return found == WHOLE;
}

static bool exists(unsigned number)
{
    struct cache_key key = key_of(number);
    cleanup_free char *path = path_of(&key);

    return access(path, F_OK) == 0;
}

static mode_t mode_of(const char *name)
{
    cleanup_free char *path = xasprintf("%s/%s", state, name);
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void test_round_trip(void **context)
{
    (void)context;
    struct cache *cache = open_cache(16 * MB);

    assert_false(get(cache, 1));
    put(cache, 1, 100);
    assert_true(get(cache, 1));
    assert_false(get(cache, 2));
    put(cache, 2, 0);
    assert_true(get(cache, 2));
    cache_close(cache);

    /* Another process with the same state directory finds it, and nobody else can read it. */
    cache = open_cache(16 * MB);
    assert_true(get(cache, 1));
    cache_close(cache);
    struct cache_key key = key_of(1);
    cleanup_free char *path = path_of(&key);
    assert_int_equal(mode_of(path + strlen(state) + 1), 0600);
    assert_int_equal(mode_of("cache"), 0700);
    assert_int_equal(mode_of("cache.key"), 0600);
}

static void test_empty_entry_fields(void **context)
{
    (void)context;
    struct cache *cache = open_cache(16 * MB);
    struct cache_key key = key_of(9);
    struct cache_entry entry = {0};

    cache_put(cache, &key, NULL, &entry);
    assert_int_equal(cache_get(cache, &key, NULL, &entry), 0);
    assert_int_equal(entry.files.count, 0);
    assert_int_equal(entry.out_len + entry.err_len, 0);
    cache_entry_done(&entry);
    cache_close(cache);
}

static char *read_whole(const char *path, size_t *ret_len)
{
    struct buf b;

    buf_init(&b, 4 * MB);
    assert_int_equal(fs_read_file(AT_FDCWD, path, &b), 0);
    return buf_take(&b, ret_len);
}

static void write_whole(const char *path, const char *data, size_t len)
{
    cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(fs_write_all(fd, data, len), 0);
}

/* Every byte changed and every length cut: never used, always removed, and replaceable. */
static void test_damage(void **context)
{
    (void)context;
    struct cache *cache = open_cache(16 * MB);
    struct cache_key key = key_of(5);
    cleanup_free char *path = path_of(&key);
    size_t len;

    put(cache, 5, 40);
    cleanup_free char *good = read_whole(path, &len);
    (void)log_set_level("error");
    for (size_t i = 0; i < len; i++) {
        good[i] ^= 0x20;
        write_whole(path, good, len);
        good[i] ^= 0x20;
        assert_false(get(cache, 5));
        assert_false(exists(5));
    }
    for (size_t cut = 0; cut < len; cut++) {
        write_whole(path, good, cut);
        assert_false(get(cache, 5));
        assert_false(exists(5));
    }
    cleanup_free char *longer = xmalloc(len + 1);
    memcpy(longer, good, len);
    longer[len] = '\0';
    write_whole(path, longer, len + 1);
    assert_false(get(cache, 5));
    write_whole(path, good, len);
    assert_true(get(cache, 5));
    cache_close(cache);
}

/* An entry under another name, under another secret, or something that is no file. */
static void test_foreign(void **context)
{
    (void)context;
    struct cache *cache = open_cache(16 * MB);
    struct cache_key one = key_of(1), two = key_of(2);
    cleanup_free char *path_one = path_of(&one);
    cleanup_free char *path_two = path_of(&two);
    cleanup_free char *secret = xasprintf("%s/cache.key", state);
    size_t len;

    (void)log_set_level("error");
    put(cache, 1, 100);
    put(cache, 2, 100);
    cleanup_free char *bytes = read_whole(path_one, &len);
    write_whole(path_two, bytes, len);
    assert_false(get(cache, 2));
    assert_int_equal(symlink(path_one, path_two), 0);
    assert_false(get(cache, 2));
    (void)unlink(path_two);
    assert_int_equal(mkdir(path_two, 0700), 0);
    assert_false(get(cache, 2));
    put(cache, 2, 100);
    assert_true(get(cache, 2));
    assert_int_equal(mkfifo(path_two, 0600), -1); /* it is there */
    (void)unlink(path_two);
    assert_int_equal(mkfifo(path_two, 0600), 0);
    assert_false(get(cache, 2));
    cache_close(cache);

    assert_int_equal(unlink(secret), 0);
    cache = open_cache(16 * MB);
    assert_false(get(cache, 1));
    put(cache, 1, 100);
    assert_true(get(cache, 1));
    cache_close(cache);
}

static void test_secret(void **context)
{
    (void)context;
    cleanup_free char *secret = xasprintf("%s/cache.key", state);
    const struct cache_settings settings = {.max_bytes = MB};
    struct cache *cache = NULL;
    struct err err = {0};

    /* Cut short by a crash of the machine: made again. */
    write_whole(secret, "short", 5);
    cache_close(open_cache(MB));
    /* Readable by others: not believed. */
    assert_int_equal(chmod(secret, 0644), 0);
    assert_int_equal(cache_open(&cache, &settings, state, &err), -EPERM);
    assert_non_null(strstr(err.message, "cache.key"));
    assert_int_equal(unlink(secret), 0);
    assert_int_equal(symlink("/etc/hostname", secret), 0);
    assert_true(cache_open(&cache, &settings, state, &err) < 0);
}

/* Runs in threads and forks, where no assertion may jump; returns NULL when all was well. */
static void *write_some(void *context)
{
    struct cache *cache = context;
    bool good = true;

    for (unsigned round = 0; round < 20; round++) {
        for (unsigned n = 0; n < 8; n++) {
            put(cache, n, 5000);
            good = good && look(cache, n) == WHOLE;
        }
    }
    return good ? NULL : context;
}

/* A child that does not outlive the test. */
static pid_t fork_bound(void)
{
    pid_t pid = fork();

    if (pid == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static void test_many_writers(void **context)
{
    (void)context;
    pid_t pids[4];
    pthread_t threads[4];
    struct cache *cache = open_cache(16 * MB);

    for (size_t i = 0; i < 4; i++) {
        pids[i] = fork_bound();
        if (pids[i] == 0)
            _exit(write_some(cache) == NULL ? 0 : 1);
    }
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_some, cache), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;

        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    for (size_t i = 0; i < 4; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    for (unsigned n = 0; n < 8; n++)
        assert_true(get(cache, n));
    cache_close(cache);
}

/* Bytes of all entries, and how many files lie in tmp/. */
static uint64_t measure(unsigned *ret_temporary)
{
    cleanup_free char *dir = xasprintf("%s/cache", state);
    cleanup_closedir DIR *top = opendir(dir);
    uint64_t bytes = 0;

    *ret_temporary = 0;
    for (struct dirent *e; (e = readdir(top)) != NULL;) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        cleanup_free char *sub = xasprintf("%s/%s", dir, e->d_name);
        cleanup_closedir DIR *d = opendir(sub);
        for (struct dirent *f; (f = readdir(d)) != NULL;) {
            struct stat st;

            if (f->d_name[0] == '.' || fstatat(dirfd(d), f->d_name, &st, 0) < 0)
                continue;
            if (strcmp(e->d_name, "tmp") == 0)
                *ret_temporary += 1;
            else
                bytes += (uint64_t)st.st_size;
        }
    }
    return bytes;
}

static void age(const char *path, time_t seconds)
{
    struct timespec times[2] = {
        {.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};

    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_eviction(void **context)
{
    (void)context;
    struct cache *cache = open_cache(MB);
    const size_t size = 60000;
    unsigned temporary;

    for (unsigned n = 0; n < 14; n++) {
        struct cache_key key = key_of(n);
        cleanup_free char *path = path_of(&key);

        put(cache, n, size);
        assert_true(exists(n));
        age(path, 1000 - n);
    }
    /* The oldest is used: now the second oldest is the next to go. */
    assert_true(get(cache, 0));
    for (unsigned n = 14; n < 20; n++)
        put(cache, n, size);
    assert_true(exists(0));
    assert_false(exists(1));
    assert_false(exists(2));
    assert_true(exists(13));
    assert_true(exists(19));
    for (unsigned n = 100; n < 300; n++) {
        put(cache, n, size);
        assert_true(get(cache, n));
        assert_true(measure(&temporary) <= MB);
    }
    /* Larger than half of all: not kept. */
    put(cache, 1000, MB / 2 + 1);
    assert_false(exists(1000));
    assert_true(exists(299));
    cache_close(cache);

    /* A counter that was lost is found again. */
    cleanup_free char *total = xasprintf("%s/cache/total", state);
    assert_int_equal(unlink(total), 0);
    cache = open_cache(MB);
    for (unsigned n = 400; n < 440; n++)
        put(cache, n, size);
    assert_true(measure(&temporary) <= MB);
    assert_int_equal(temporary, 0);
    cache_close(cache);
}

/* A writer killed at any moment leaves whole entries, and what it left in tmp/ goes later. */
static void test_killed_writer(void **context)
{
    (void)context;
    struct cache *cache = open_cache(2 * MB);
    uint64_t random_state = 7;
    unsigned temporary;

    for (unsigned round = 0; round < 40; round++) {
        pid_t pid = fork_bound();

        if (pid == 0) {
            for (unsigned n = 0;; n++)
                put(cache, n % 64, 100000);
        }
        const struct timespec wait = {
            .tv_nsec = 1000000 + test_random(&random_state) % 8000000};
        (void)nanosleep(&wait, NULL);
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    for (unsigned n = 0; n < 64; n++) {
        bool was_there = exists(n);

        assert_int_equal(get(cache, n), was_there);
    }
    assert_true(measure(&temporary) <= 2 * MB + 200000);
    cleanup_free char *left = xasprintf("%s/cache/tmp/new-left", state);
    write_whole(left, "half", 4);
    put(cache, 1, 10);
    assert_int_equal(access(left, F_OK), 0); /* a writer may still be at work on it */
    age(left, 120);
    put(cache, 1, 10);
    assert_int_equal(access(left, F_OK), -1);
    cache_close(cache);
}

struct question_fixture {
    struct runtime runtime;
    struct run_stage stage;
    struct run_files files;
    struct root_entries root;
    struct run_image image;
    struct cache_question question;
};

static void question_make(struct question_fixture *f)
{
    *f = (struct question_fixture){
        .runtime = {.name = (char *)"c"}, .root = {.key = "c-1"}, .image = {.count = 1}};
    strv_add(&f->runtime.compile_root.execs, "/usr/bin/gcc");
    strv_add(&f->stage.argv, "gcc");
    strv_add(&f->stage.argv, "-O2");
    strv_add(&f->stage.env, "A=b");
    strv_add(&f->stage.artefacts, "main");
    run_files_add(&f->files, "main.c", xstrdup("int x;"), 6, false);
    run_files_add(&f->files, "b.c", xstrdup("int y;"), 6, false);
    f->question = (struct cache_question){.scope = "one",
        .image = &f->image,
        .runtime = &f->runtime,
        .stage = &f->stage,
        .files = &f->files,
        .root = &f->root};
}

static void question_done(struct question_fixture *f)
{
    strv_done(&f->runtime.compile_root.execs);
    strv_done(&f->stage.argv);
    strv_done(&f->stage.env);
    strv_done(&f->stage.artefacts);
    run_files_done(&f->files);
    run_files_done(&f->stage.files);
    free(f->root.items);
}

/* Each row changes one thing. */
static void change(struct question_fixture *f, unsigned what)
{
    switch (what) {
    case 1:
        f->question.scope = "two";
        break;
    case 2:
        f->question.image = NULL;
        break;
    case 3:
        f->runtime.name = (char *)"cpp";
        break;
    case 4:
        f->runtime.digest[31] = 1;
        break;
    case 5:
        f->stage.argv.items[1][2] = '3';
        break;
    case 6:
        strv_add(&f->stage.argv, "");
        break;
    case 7:
        f->stage.env.items[0][0] = 'B';
        break;
    case 8:
        f->files.items[0].name[0] = 'n';
        break;
    case 9:
        f->files.items[0].content[4] = 'z';
        break;
    case 10:
        f->files.items[0].executable = true;
        break;
    case 11:
        f->files.count--;
        free(f->files.items[1].name);
        free(f->files.items[1].content);
        break;
    case 12:
        run_files_add(&f->stage.files, "go.mod", xstrdup("m"), 1, false);
        break;
    case 13:
        f->root.key[2] = '2';
        break;
    case 14:
        f->stage.artefacts.items[0][0] = 'n';
        break;
    case 15:
        f->stage.program = (char *)"main";
        break;
    case 16:
        f->files.items[0].size = 5;
        break;
    case 17:
        f->root.count = 1;
        f->root.items = xcalloc(1, sizeof(*f->root.items));
        f->root.items[0].kind = ENTRY_BIND;
        (void)snprintf(f->root.items[0].path, SPAWN_PATH_MAX, "/usr/bin");
        (void)snprintf(f->root.items[0].source, SPAWN_PATH_MAX, "/usr/bin");
        break;
    case 18:
        f->image.count = 2;
        break;
    case 19:
        f->image.layers[0][31] = 1;
        break;
    default:
        break;
    }
}

static void test_key(void **context)
{
    (void)context;
    struct cache_key keys[20];

    for (unsigned what = 0; what < 20; what++) {
        struct question_fixture f;
        struct cache_key again;

        question_make(&f);
        change(&f, what);
        cache_key_make(&f.question, &keys[what]);
        cache_key_make(&f.question, &again);
        assert_memory_equal(&again, &keys[what], sizeof(again));
        question_done(&f);
        for (unsigned other = 0; other < what; other++) {
            if (memcmp(&keys[other], &keys[what], sizeof(again)) == 0)
                fail_msg("changes %u and %u give the same key", other, what);
        }
    }
}

static void test_settings(void **context)
{
    (void)context;
    struct cache_settings settings;
    struct err err = {0};
    static const char *const bad[] = {
        "x", "-1", "1.5", "99999999999999999999", "1 ", "16777217"};

    assert_int_equal(cache_settings_parse(NULL, "", &settings, &err), 0);
    assert_int_equal(settings.max_bytes, 1024 * (uint64_t)MB);
    assert_false(settings.shared);
    assert_int_equal(cache_settings_parse("0", "1", &settings, &err), 0);
    assert_int_equal(settings.max_bytes, 0);
    assert_true(settings.shared);
    /* what a server accepts */
    assert_int_equal(cache_settings_parse("", "True", &settings, &err), 0);
    assert_true(settings.shared);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_true(cache_settings_parse(bad[i], NULL, &settings, &err) < 0);
        assert_string_equal(err.field, "HERMES_CACHE_MB");
    }
    assert_true(cache_settings_parse(NULL, "maybe", &settings, &err) < 0);
    assert_string_equal(err.field, "HERMES_CACHE_SHARED");
}

int main(void)
{
#define ROW(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROW(test_round_trip),
        ROW(test_empty_entry_fields),
        ROW(test_damage),
        ROW(test_foreign),
        ROW(test_secret),
        ROW(test_many_writers),
        ROW(test_eviction),
        ROW(test_killed_writer),
        ROW(test_key),
        ROW(test_settings),
    };
#undef ROW

    return cmocka_run_group_tests(tests, NULL, NULL);
}
