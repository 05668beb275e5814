/* SPDX-License-Identifier: Apache-2.0 */

/* See case.h. The table has one row per header key. Unknown keys are refused, so that a
 * misspelt expectation cannot pass unnoticed. tests/attacks/check_cases.py checks the headers
 * more thoroughly, also how keys depend on each other. */

#include "attack/case.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "proto/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CASE_MAX_BYTES = 256 << 10 };

static const struct {
    const char *suffix;
    const char *language;
    const char *mark; /* begins each header line */
    bool own_limits;  /* unset limits are the runtime's own, because ready boxes have these */
} languages[] = {
    {".py", "python", "# ", false},
    {".c", "c", "// ", false},
    {".cpp", "cpp", "// ", false},
    {".sh", "bash", "# ", false},
    {".js", "javascript", "// ", true},
};

static const struct {
    const char *name;
    uint32_t bit;
} barriers[] = {
    {"seccomp", BARRIER_SECCOMP},
    {"landlock", BARRIER_LANDLOCK},
    {"netns", BARRIER_NETNS},
    {"ipcns", BARRIER_IPCNS},
    {"pidns_proc", BARRIER_PIDNS_PROC},
    {"memory", BARRIER_MEMORY},
    {"pids", BARRIER_PIDS},
    {"disk", BARRIER_DISK},
    {"caps", BARRIER_CAPS},
    {"rlimits", BARRIER_RLIMITS},
    {"fds", BARRIER_FDS},
    {"userns_max", BARRIER_USERNS_MAX},
    {"uid", BARRIER_UID},
    {"nnp", BARRIER_NNP},
    {"cpu", BARRIER_CPU},
    {"utsns", BARRIER_UTSNS},
    {"cgroupns", BARRIER_CGROUPNS},
};

/* Limits of a case that sets none (selftest/README.md). */
static const struct run_limits default_limits = {.wall_ms = 30000,
    .cpu_ms = 10000,
    .memory_mb = 128,
    .processes = 64,
    .disk_mb = 32,
    .output_kb = 64};

/* Calls take() for each part of value between separators, without surrounding spaces. */
static int each_part(struct attack_case *c, const char *value, const char *separators,
    int (*take)(struct attack_case *c, const char *part, void *to), void *to)
{
    cleanup_free char *copy = xstrdup(value);
    char *save = NULL;
    int r = 0;
    for (char *part = strtok_r(copy, separators, &save); part && r == 0;
         part = strtok_r(NULL, separators, &save)) {
        part += strspn(part, " ");
        size_t len = strlen(part);
        while (len && part[len - 1] == ' ')
            part[--len] = '\0';
        r = len ? take(c, part, to) : -EINVAL;
    }
    return r;
}

static int find_status(const char *name, unsigned *ret)
{
    for (unsigned i = RUN_OK; i < RUN_CANCELLED; i++) {
        if (str_eq(name, run_status_name((enum run_status)i))) {
            *ret = i;
            return 0;
        }
    }
    return -EINVAL;
}

static int find_hit(const char *name, unsigned *ret_bit)
{
    for (unsigned i = 0; i < HIT_COUNT; i++) {
        if (str_eq(name, run_hit_name(i))) {
            *ret_bit = 1u << i;
            return 0;
        }
    }
    return -EINVAL;
}

static int add_status(struct attack_case *c, const char *part, void *to)
{
    unsigned status;
    if (find_status(part, &status) < 0)
        return -EINVAL;
    c->statuses |= 1u << status;
    return 0;
}

static int add_hit(struct attack_case *c, const char *part, void *to)
{
    unsigned bit;
    if (find_hit(part, &bit) < 0)
        return -EINVAL;
    *(unsigned *)to |= bit;
    return 0;
}

static int add_string(struct attack_case *c, const char *part, void *to)
{
    strv_add(to, part);
    return 0;
}

static int add_limit(struct attack_case *c, const char *part, void *to)
{
    const char *equals = strchr(part, '=');
    uint64_t value;
    if (!equals || str_parse_u64(equals + 1, &value) < 0 || value == 0)
        return -EINVAL;
    for (size_t i = 0; i < limit_count; i++) {
        if (strlen(limit_table[i].name) == (size_t)(equals - part) &&
            str_has_prefix(part, limit_table[i].name)) {
            *limit_member(to, &limit_table[i]) = value * limit_table[i].scale;
            return 0;
        }
    }
    return -EINVAL;
}

static int add_barrier(struct attack_case *c, const char *part, void *to)
{
    if (str_eq(part, "mount")) {
        c->host_root = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof(barriers) / sizeof(barriers[0]); i++) {
        if (str_eq(part, barriers[i].name)) {
            c->remove |= barriers[i].bit;
            return 0;
        }
    }
    return -EINVAL;
}

static int take_string(struct attack_case *c, const char *value, void *to)
{
    *(char **)to = xstrdup(value);
    return 0;
}

static int take_flag(struct attack_case *c, const char *value, void *to)
{
    *(bool *)to = true;
    return str_eq(value, "yes") ? 0 : -EINVAL;
}

static int take_number(struct attack_case *c, const char *value, void *to)
{
    uint32_t number;
    if (str_parse_u32(value, &number) < 0 || number > 255)
        return -EINVAL;
    *(unsigned *)to = number;
    return 0;
}

static int take_language(struct attack_case *c, const char *value, void *to)
{
    for (size_t i = 0; i < sizeof(languages) / sizeof(languages[0]); i++) {
        if (str_eq(value, languages[i].language)) {
            c->language = languages[i].language;
            return 0;
        }
    }
    return -EINVAL;
}

static int take_statuses(struct attack_case *c, const char *value, void *to)
{
    return each_part(c, value, ",", add_status, NULL);
}

static int take_hits(struct attack_case *c, const char *value, void *to)
{
    return each_part(c, value, ",", add_hit, to);
}

static int take_limits(struct attack_case *c, const char *value, void *to)
{
    return each_part(c, value, " ", add_limit, to);
}

static int take_list(struct attack_case *c, const char *value, void *to)
{
    return each_part(c, value, ",", add_string, to);
}

static int take_rootless(struct attack_case *c, const char *value, void *to)
{
    if (!str_has_prefix(value, "skip "))
        return -EINVAL;
    c->rootless = xstrdup(value + strlen("skip "));
    return 0;
}

static int take_control(struct attack_case *c, const char *value, void *to)
{
    if (str_eq(value, "none"))
        return 0;
    c->has_control = true;
    c->barriers = xstrdup(value);
    return each_part(c, value, ",", add_barrier, NULL);
}

static int take_control_expect(struct attack_case *c, const char *value, void *to)
{
    if (str_has_prefix(value, "hit:")) {
        c->control_kind = CONTROL_HIT;
        return find_hit(value + strlen("hit:"), &c->control_value);
    }
    if (str_eq(value, "breach"))
        return 0;
    c->control_kind = CONTROL_STATUS;
    return find_status(value, &c->control_value);
}

static int take_text(struct attack_case *c, const char *value, void *to)
{
    return 0; /* only for human readers */
}

#define MEMBER(name) offsetof(struct attack_case, name)

static const struct {
    const char *key;
    bool required;
    int (*take)(struct attack_case *c, const char *value, void *to);
    size_t offset;
} keys[] = {
    {"id", true, take_string, MEMBER(id)},
    {"name", true, take_string, MEMBER(name)},
    {"group", true, take_string, MEMBER(group)},
    {"priority", true, take_number, MEMBER(priority)},
    {"expect", true, take_statuses, 0},
    {"control", true, take_control, 0},
    {"language", false, take_language, 0},
    {"expect-signal", false, take_string, MEMBER(signal)},
    {"expect-exit", false, take_number, MEMBER(exit_code)},
    {"expect-hit", false, take_hits, MEMBER(hits)},
    {"expect-not-hit", false, take_hits, MEMBER(not_hits)},
    {"limits", false, take_limits, MEMBER(limits)},
    {"compile-limits", false, take_limits, MEMBER(compile_limits)},
    {"control-expect", false, take_control_expect, 0},
    {"control-why", false, take_text, 0},
    {"runs", false, take_number, MEMBER(runs)},
    {"victim", false, take_flag, MEMBER(victim)},
    {"collect", false, take_list, MEMBER(collect)},
    {"expect-file", false, take_list, MEMBER(expect_files)},
    {"differ", false, take_string, MEMBER(differ)},
    {"files", false, take_list, MEMBER(files)},
    {"root-only", false, take_flag, MEMBER(root_only)},
    {"rootless", false, take_rootless, 0},
    {"needs-cgroup", false, take_flag, MEMBER(needs_cgroup)},
};
enum { KEY_COUNT = sizeof(keys) / sizeof(keys[0]) };

/* Splits a line `key: value` in place. False when it is not one, which ends the header. */
static bool split_line(
    char *line, const char *mark, const char **ret_key, const char **ret_value)
{
    if (!str_has_prefix(line, mark))
        return false;
    char *key = line + strlen(mark);
    size_t len = strspn(key, "abcdefghijklmnopqrstuvwxyz-");
    if (len == 0 || !str_has_prefix(key + len, ": ") || key[len + 2] == '\0')
        return false;
    key[len] = '\0';
    *ret_key = key;
    *ret_value = key + len + 2;
    return true;
}

static int take_key(
    struct attack_case *c, const char *key, const char *value, bool seen[], struct err *err)
{
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (!str_eq(key, keys[i].key))
            continue;
        if (seen[i])
            return err_set(err, ERR_INVALID, EINVAL, "%s: %s stands twice", c->file, key);
        seen[i] = true;
        if (keys[i].take(c, value, (char *)c + keys[i].offset) < 0)
            return err_set(
                err, ERR_INVALID, EINVAL, "%s: %s: bad value `%s`", c->file, key, value);
        return 0;
    }
    return err_set(err, ERR_INVALID, EINVAL, "%s: unknown key `%s`", c->file, key);
}

static int parse_header(struct attack_case *c, const char *mark, struct err *err)
{
    cleanup_free char *copy = xstrdup(c->text);
    bool seen[KEY_COUNT] = {false};
    char *save = NULL;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *key;
        const char *value;
        if (!split_line(line, mark, &key, &value))
            break;
        int r = take_key(c, key, value, seen, err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (keys[i].required && !seen[i])
            return err_set(err, ERR_INVALID, EINVAL, "%s: no `%s`", c->file, keys[i].key);
    }
    if (c->runs < 1 || c->runs > 2)
        return err_set(err, ERR_INVALID, EINVAL, "%s: `runs` can only be 2", c->file);
    size_t group_len = strlen(c->group);
    if (!str_has_prefix(c->file, c->group) || c->file[group_len] != '/')
        return err_set(err, ERR_INVALID, EINVAL, "%s: its group is %s", c->file, c->group);
    return 0;
}

static void case_done(struct attack_case *c)
{
    free(c->id);
    free(c->name);
    free(c->group);
    free(c->file);
    free(c->text);
    free(c->signal);
    free(c->differ);
    free(c->rootless);
    free(c->barriers);
    strv_done(&c->collect);
    strv_done(&c->expect_files);
    strv_done(&c->files);
}

static int load_case(struct attack_cases *cases, int dir_fd, const char *file, struct err *err)
{
    size_t kind = 0;
    const size_t kinds = sizeof(languages) / sizeof(languages[0]);
    while (kind < kinds && !str_has_suffix(file, languages[kind].suffix))
        kind++;
    if (kind == kinds)
        return 0;
    cleanup_buf struct buf text = {0};
    buf_init(&text, CASE_MAX_BYTES);
    int r = fs_read_file(dir_fd, file, &text);
    if (r < 0)
        return err_set(err, ERR_INVALID, -r, "%s: cannot be read: %s", file, strerror(-r));
    cases->items = xreallocarray(cases->items, cases->count + 1, sizeof(*cases->items));
    struct attack_case *c = &cases->items[cases->count++];
    *c = (struct attack_case){.file = xstrdup(file),
        .language = languages[kind].language,
        .exit_code = -1,
        .runs = 1};
    if (!languages[kind].own_limits)
        c->limits = default_limits;
    c->text = buf_take(&text, &c->text_len);
    return parse_header(c, languages[kind].mark, err);
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct attack_case *)a)->id, ((const struct attack_case *)b)->id);
}

/* Loads the cases of one group, which is a folder of that name. */
static int load_group(
    struct attack_cases *cases, int dir_fd, const char *group, struct err *err)
{
    int fd = openat(dir_fd, group, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int error = errno;
        close_fd(&fd);
        return error == ENOTDIR ? 0
                                : err_set(err, ERR_INVALID, error, "%s: cannot be listed: %s",
                                      group, strerror(error));
    }
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        cleanup_free char *file = xasprintf("%s/%s", group, e->d_name);
        r = load_case(cases, dir_fd, file, err);
    }
    return r;
}

int attack_cases_load(struct attack_cases *ret, const char *dir, struct err *err)
{
    cleanup_closedir DIR *d = opendir(dir);
    if (!d)
        return err_set(
            err, ERR_INVALID, errno, "%s: cannot be listed: %s", dir, strerror(errno));
    struct attack_cases cases = {.dir = xstrdup(dir)};
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        if (e->d_name[0] != '.')
            r = load_group(&cases, dirfd(d), e->d_name, err);
    }
    if (r == 0 && cases.count == 0)
        r = err_set(err, ERR_INVALID, ENOENT, "there are no cases in %s", dir);
    if (r < 0) {
        attack_cases_done(&cases);
        return err_wrap(err, r, "attack cases");
    }
    if (cases.items)
        qsort(cases.items, cases.count, sizeof(*cases.items), by_id);
    *ret = cases;
    return 0;
}

void attack_cases_done(struct attack_cases *cases)
{
    for (size_t i = 0; i < cases->count; i++)
        case_done(&cases->items[i]);
    free(cases->items);
    free(cases->dir);
    *cases = (struct attack_cases){0};
}

char *attack_cases_dir(const char *named)
{
    static const char *const beside[] = {"../selftest/cases", "../share/hermes/selftest/cases",
        "../../share/hermes/selftest/cases"};
    if (named && named[0])
        return realpath(named, NULL);
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
        cleanup_free char *path = fs_beside_self(beside[i]);
        if (path && access(path, R_OK | X_OK) == 0)
            return realpath(path, NULL);
    }
    return access("/usr/share/hermes/selftest/cases", R_OK | X_OK) == 0
               ? xstrdup("/usr/share/hermes/selftest/cases")
               : NULL;
}
