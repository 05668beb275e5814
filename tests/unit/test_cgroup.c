/* SPDX-License-Identifier: Apache-2.0 */

/* Leaves in directories of plain files that stand in for the kernel's: what is written where a
 * file is missing, and what the counters mean. */

#include "cgroup/cgroup.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MB = 1 << 20 };

struct stage {
    char path[64];
    int fd;
    struct cgroup_host host;
    struct cgroup_leaf leaf;
};

static void put(const struct stage *s, const char *file, const char *text)
{
    cleanup_close int fd = openat(s->fd, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void open_stage(struct stage *s, bool v2)
{
    (void)snprintf(s->path, sizeof(s->path), "/tmp/test-cgroup-XXXXXX");
    assert_non_null(mkdtemp(s->path));
    s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(s->fd >= 0);
    s->host = (struct cgroup_host){.use = TREE_MEMORY, .count = 1};
    s->host.trees[0] = (struct cgroup_tree){.use = TREE_MEMORY, .v2 = v2, .fd = -1};
    cgroup_leaf_init(&s->leaf);
    s->leaf.fds[0] = s->fd;
    s->leaf.limits.memory_bytes = 64 * MB;
}

static void close_stage(struct stage *s)
{
    char command[96];
    (void)close(s->fd);
    for (const char *const *file = (const char *const[]){"memory.limit_in_bytes",
             "memory.memsw.limit_in_bytes", "memory.swappiness", "memory.oom_control",
             "memory.max_usage_in_bytes", "memory.events", "memory.peak", NULL};
         *file; file++) {
        (void)snprintf(command, sizeof(command), "%s/%s", s->path, *file);
        (void)unlink(command);
    }
    assert_int_equal(rmdir(s->path), 0);
}

static void assert_file(const struct stage *s, const char *file, const char *text)
{
    char have[64];
    assert_true(fs_read_small(s->fd, file, have, sizeof(have)) >= 0);
    assert_string_equal(have, text);
}

static void swap_that_is_not_counted_is_not_used(void **state)
{
    const struct spawn_limits limits = {.memory_bytes = 32 * MB};
    struct stage s;
    open_stage(&s, false);
    put(&s, "memory.limit_in_bytes", "");
    put(&s, "memory.swappiness", "60");
    assert_int_equal(cgroup_leaf_limit(&s.host, &limits, 0, &s.leaf), 0);
    assert_file(&s, "memory.limit_in_bytes", "33554432");
    assert_file(&s, "memory.swappiness", "00"); /* a plain file keeps what was behind it */
    close_stage(&s);
}

static void swap_that_is_counted_is_limited(void **state)
{
    const struct spawn_limits limits = {.memory_bytes = 32 * MB};
    struct stage s;
    open_stage(&s, false);
    put(&s, "memory.limit_in_bytes", "");
    put(&s, "memory.memsw.limit_in_bytes", "");
    put(&s, "memory.swappiness", "60");
    assert_int_equal(cgroup_leaf_limit(&s.host, &limits, 0, &s.leaf), 0);
    assert_file(&s, "memory.memsw.limit_in_bytes", "33554432");
    assert_file(&s, "memory.swappiness", "60");
    close_stage(&s);
}

static void a_limit_without_any_of_both_is_refused(void **state)
{
    const struct spawn_limits limits = {.memory_bytes = 32 * MB};
    struct stage s;
    open_stage(&s, false);
    put(&s, "memory.limit_in_bytes", "");
    assert_int_equal(cgroup_leaf_limit(&s.host, &limits, 0, &s.leaf), -ENOENT);
    assert_false(s.leaf.is_limited);
    close_stage(&s);
}

static void a_kill_is_the_limits_only_near_the_limit(void **state)
{
    static const struct {
        bool v2;
        const char *kills, *peak;
        bool oom_kill, is_limit;
    } rows[] = {
        {false, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "67108864", true, true},
        {false, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "67000000", true, true},
        {false, "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n", "33554432", true, false},
        {false, "oom_kill_disable 0\nunder_oom 1\noom_kill 0\n", "67108864", false, false},
        {false, "oom_kill_disable 1\nunder_oom 0\noom_kill 0\n", "0", false, false},
        {true, "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n", "1", true, true},
        {true, "low 0\nhigh 0\nmax 9\noom 0\noom_kill 2\n", "67108864", true, false},
        {true, "low 0\nhigh 0\nmax 9\noom 4\noom_kill 0\n", "67108864", false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stage s;
        struct cgroup_usage usage;
        open_stage(&s, rows[i].v2);
        put(&s, rows[i].v2 ? "memory.events" : "memory.oom_control", rows[i].kills);
        put(&s, rows[i].v2 ? "memory.peak" : "memory.max_usage_in_bytes", rows[i].peak);
        cgroup_leaf_usage(&s.host, &s.leaf, &usage);
        assert_int_equal(usage.oom_kill, rows[i].oom_kill);
        assert_int_equal(usage.is_limit, rows[i].is_limit);
        assert_true(cgroup_leaf_exists(&s.host, &s.leaf));
        close_stage(&s);
    }
}

static void a_group_that_is_gone_is_not_there(void **state)
{
    struct stage s;
    struct cgroup_usage usage;
    open_stage(&s, false);
    assert_false(cgroup_leaf_exists(&s.host, &s.leaf));
    cgroup_leaf_usage(&s.host, &s.leaf, &usage);
    assert_false(usage.oom_kill || usage.is_limit);
    close_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swap_that_is_not_counted_is_not_used),
        cmocka_unit_test(swap_that_is_counted_is_limited),
        cmocka_unit_test(a_limit_without_any_of_both_is_refused),
        cmocka_unit_test(a_kill_is_the_limits_only_near_the_limit),
        cmocka_unit_test(a_group_that_is_gone_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
