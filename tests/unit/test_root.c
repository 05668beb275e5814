/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about curated roots: what gets in, what is covered, and that building, reusing and
 * cleaning up do not get into each other's way. */

#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "lang/rootfs.h"
#include "lang/state_dir.h"
#include "runtime_fixture.h"

static char *state_dir;
static struct lang_dirs dirs;
static struct root_walks walks;

struct place {
    char *dir; /* holds the state directory and a tree to bind */
};

static int set_up(void **state)
{
    struct place *place = xcalloc(1, sizeof(*place));

    place->dir = fixture_make_dir();
    state_dir = xasprintf("%s/state", place->dir);
    dirs = (struct lang_dirs){.runtimes = fixture_dirs()->runtimes, .state = state_dir};
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;

    root_walks_done(&walks);
    free(state_dir);
    state_dir = NULL;
    fixture_remove_dir(&place->dir);
    free(place);
    return 0;
}

static const struct spawn_entry *find_entry(
    const struct root_entries *entries, enum spawn_entry_kind kind, const char *path)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (entries->items[i].kind == kind && str_eq(entries->items[i].path, path))
            return &entries->items[i];
    }
    return NULL;
}

/* Where the tree of a root has this path on the host; the caller frees. */
static char *in_tree(const struct root_entries *entries, const char *path)
{
    assert_int_equal(entries->items[0].kind, ENTRY_TREE);
    return xasprintf("%s%s", entries->items[0].source, path);
}

/* Directories in state/roots, those under a temporary name included. */
static size_t count_roots(const struct place *place)
{
    cleanup_free char *path = xasprintf("%s/state/roots", place->dir);
    cleanup_closedir DIR *d = opendir(path);
    struct dirent *entry;
    size_t count = 0;

    while (d != NULL && (entry = readdir(d)) != NULL)
        count += !str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..");
    return count;
}

static void describe(const struct root_spec *spec, struct root_entries *entries)
{
    struct err err = {0};

    root_entries_init(entries);
    if (root_describe(spec, "test", &dirs, &walks, entries, &err) < 0)
        fail_msg("%s", err.message);
}

/* A spec that binds dir/tree as /opt/tree. */
static void bind_tree(struct root_spec *spec, struct root_path *path, const struct place *place)
{
    path->host = xasprintf("%s/tree", place->dir);
    path->box = (char *)"/opt/tree";
    *spec = (struct root_spec){.paths = path, .path_count = 1};
}

static void the_state_directory_is_private(void **state)
{
    struct place *place = *state;
    cleanup_free char *path = NULL;
    struct err err = {0};
    struct stat st;
    cleanup_close int fd = state_dir_open(state_dir, &path, &err);

    assert_true(fd >= 0);
    assert_true(str_has_prefix(path, place->dir));
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void a_plain_root_has_tools_libraries_and_etc(void **state)
{
    CLEANUP(root_entries_done) struct root_entries entries;
    struct root_spec spec = {0};

    strv_add(&spec.execs, "/usr/bin/bash");
    strv_add(&spec.execs, "/box/main");
    describe(&spec, &entries);
    cleanup_free char *bash = in_tree(&entries, "/usr/bin/bash");
    cleanup_free char *su = in_tree(&entries, "/usr/bin/su");
    cleanup_free char *passwd = in_tree(&entries, "/etc/passwd");
    cleanup_free char *bin = in_tree(&entries, "/bin");
    char target[16] = "";
    assert_int_equal(access(bash, X_OK), 0);
    assert_int_not_equal(access(su, F_OK), 0);
    assert_int_equal(access(passwd, R_OK), 0);
    assert_int_equal(readlink(bin, target, sizeof(target) - 1), 7);
    assert_string_equal(target, "usr/bin");
    assert_null(find_entry(&entries, ENTRY_BIND, "/etc"));
    assert_null(find_entry(&entries, ENTRY_BIND, "/usr"));
    assert_int_equal(entries.items[entries.count - 2].kind, ENTRY_EXEC);
    assert_string_equal(entries.items[entries.count - 1].path, "/box/main");
    strv_done(&spec.execs);
}

static void no_tool_has_privileges(void **state)
{
    CLEANUP(root_entries_done) struct root_entries entries;
    struct root_spec spec = {0};
    struct dirent *entry;

    /* These are set-uid on any Debian. */
    strv_add(&spec.tools, "su");
    strv_add(&spec.tools, "mount");
    strv_add(&spec.tools, "/usr/bin/passwd");
    describe(&spec, &entries);
    cleanup_free char *bin = in_tree(&entries, "/usr/bin");
    cleanup_closedir DIR *d = opendir(bin);
    assert_non_null(d);
    while ((entry = readdir(d)) != NULL) {
        struct stat st;

        assert_int_equal(fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_false(S_ISREG(st.st_mode) && (st.st_mode & 06000));
        assert_false(S_ISLNK(st.st_mode));
        assert_string_not_equal(entry->d_name, "su");
        assert_string_not_equal(entry->d_name, "mount");
    }
    strv_done(&spec.tools);
}

static void privileged_files_in_bound_directories_are_covered(void **state)
{
    struct place *place = *state;
    CLEANUP(root_entries_done) struct root_entries entries;
    struct root_spec spec;
    struct root_path path = {0};

    fixture_write(place->dir, "tree/a/b/plain", "x");
    fixture_write(place->dir, "tree/a/b/setuid", "x");
    fixture_write(place->dir, "tree/setgid", "x");
    cleanup_free char *setuid_path = xasprintf("%s/tree/a/b/setuid", place->dir);
    cleanup_free char *setgid_path = xasprintf("%s/tree/setgid", place->dir);
    assert_int_equal(chmod(setuid_path, 04755), 0);
    assert_int_equal(chmod(setgid_path, 02755), 0);
    bind_tree(&spec, &path, place);
    describe(&spec, &entries);
    const struct spawn_entry *mask = find_entry(&entries, ENTRY_MASK, "/opt/tree/a/b/setuid");
    assert_non_null(mask);
    assert_non_null(find_entry(&entries, ENTRY_MASK, "/opt/tree/setgid"));
    assert_null(find_entry(&entries, ENTRY_MASK, "/opt/tree/a/b/plain"));
    /* The cover comes after what it covers. */
    assert_true(mask > find_entry(&entries, ENTRY_BIND, "/opt/tree"));
    free(path.host);
}

/* Another root that binds the directory has the same covers without another walk: a file that
 * is new is not seen until the walks are forgotten. */
static void a_directory_is_walked_once_for_all_roots(void **state)
{
    struct place *place = *state;
    struct root_spec spec;
    struct root_path path = {0};

    fixture_write(place->dir, "tree/a/setuid", "x");
    cleanup_free char *first = xasprintf("%s/tree/a/setuid", place->dir);
    assert_int_equal(chmod(first, 04755), 0);
    for (int round = 0; round < 3; round++) {
        CLEANUP(root_entries_done) struct root_entries entries;
        bind_tree(&spec, &path, place);
        path.box = xasprintf("/opt/tree%d", round); /* not the root of the round before */
        cleanup_free char *old = xasprintf("%s/a/setuid", path.box);
        cleanup_free char *new = xasprintf("%s/a/b/setuid", path.box);
        describe(&spec, &entries);
        assert_non_null(find_entry(&entries, ENTRY_MASK, old));
        assert_int_equal(find_entry(&entries, ENTRY_MASK, new) != NULL, round == 2);
        if (round == 0) {
            fixture_write(place->dir, "tree/a/b/setuid", "x");
            cleanup_free char *second = xasprintf("%s/tree/a/b/setuid", place->dir);
            assert_int_equal(chmod(second, 04755), 0);
        } else {
            root_walks_done(&walks);
        }
        free(path.host);
        free(path.box);
    }
}

/* A root is for boxes' users, whatever its maker keeps to himself. */
static void everybody_may_read_the_tree(void **state)
{
    CLEANUP(root_entries_done) struct root_entries entries;
    struct root_spec spec = {0};
    static const char *const paths[] = {"", "/usr", "/usr/bin", "/etc", "/etc/passwd", "/box"};

    mode_t mask = umask(077);
    describe(&spec, &entries);
    assert_int_equal(umask(mask), 077);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        cleanup_free char *path = in_tree(&entries, paths[i]);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0022, 0);
        assert_int_equal(st.st_mode & 0004, 0004);
        assert_true(!S_ISDIR(st.st_mode) || (st.st_mode & 0001));
    }
}

static void needed_paths_must_exist_and_optional_ones_may_not(void **state)
{
    struct root_path path = {.host = (char *)"/nonexistent/dir*"};
    struct root_spec spec = {.paths = &path, .path_count = 1};
    CLEANUP(root_entries_done) struct root_entries entries;
    struct err err = {0};

    root_entries_init(&entries);
    assert_true(root_describe(&spec, "test", &dirs, &walks, &entries, &err) < 0);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "/nonexistent/dir*"));
    assert_int_equal(count_roots(*state), 0);
    path.optional = true;
    describe(&spec, &entries);
}

static void the_same_root_is_made_once(void **state)
{
    CLEANUP(root_entries_done) struct root_entries first, second;
    struct root_spec spec = {0};

    strv_add(&spec.execs, "/box/main");
    describe(&spec, &first);
    describe(&spec, &second);
    assert_int_equal(first.count, second.count);
    assert_memory_equal(first.items, second.items, first.count * sizeof(*first.items));
    assert_int_equal(count_roots(*state), 1);
    strv_done(&spec.execs);
}

static void a_stale_root_goes_only_when_nobody_uses_it(void **state)
{
    struct place *place = *state;
    CLEANUP(root_entries_done) struct root_entries old, newer, newest;
    struct root_spec spec;
    struct root_path path = {0};

    fixture_write(place->dir, "tree/x", "x");
    bind_tree(&spec, &path, place);
    describe(&spec, &old);
    /* A new file changes the directory, and with it the key. */
    fixture_write(place->dir, "tree/y", "y");
    describe(&spec, &newer);
    assert_int_equal(count_roots(place), 2);
    assert_int_equal(access(old.items[0].source, F_OK), 0);
    root_entries_done(&old);
    fixture_write(place->dir, "tree/z", "z");
    describe(&spec, &newest);
    assert_int_equal(count_roots(place), 2);
    assert_int_equal(access(newer.items[0].source, F_OK), 0);
    free(path.host);
}

static void damaged_roots_are_made_again(void **state)
{
    struct place *place = *state;
    CLEANUP(root_entries_done) struct root_entries entries;
    struct root_spec spec = {0};

    describe(&spec, &entries);
    size_t count = entries.count;
    cleanup_free char *dir = xstrdup(entries.items[0].source);
    *strrchr(dir, '/') = '\0';
    root_entries_done(&entries);
    cleanup_free char *file = xasprintf("%s/../entries", dir);
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(truncate(file, 100), 0);
    describe(&spec, &entries);
    assert_int_equal(entries.count, count);
    assert_int_equal(count_roots(place), 1);
}

static void builders_at_the_same_time_agree(void **state)
{
    enum { BUILDERS = 8 };
    struct root_spec spec = {0};
    pid_t pids[BUILDERS];

    for (int i = 0; i < BUILDERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            struct root_entries entries;
            struct err err = {0};

            root_entries_init(&entries);
            int r = root_describe(&spec, "test", &dirs, &walks, &entries, &err);
            _exit(r == 0 && access(entries.items[0].source, F_OK) == 0 ? 0 : 1);
        }
    }
    for (int i = 0; i < BUILDERS; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_roots(*state), 1);
}

int main(void)
{
#define ROOT_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROOT_TEST(the_state_directory_is_private),
        ROOT_TEST(a_plain_root_has_tools_libraries_and_etc),
        ROOT_TEST(no_tool_has_privileges),
        ROOT_TEST(privileged_files_in_bound_directories_are_covered),
        ROOT_TEST(a_directory_is_walked_once_for_all_roots),
        ROOT_TEST(everybody_may_read_the_tree),
        ROOT_TEST(needed_paths_must_exist_and_optional_ones_may_not),
        ROOT_TEST(the_same_root_is_made_once),
        ROOT_TEST(a_stale_root_goes_only_when_nobody_uses_it),
        ROOT_TEST(damaged_roots_are_made_again),
        ROOT_TEST(builders_at_the_same_time_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
