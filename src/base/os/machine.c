/* SPDX-License-Identifier: Apache-2.0 */

/* See machine.h. Limits come from /proc and from our control group and all groups above it, in
 * cgroup v1 and v2. */

#include "base/os/machine.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

unsigned machine_cores(void)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return cores > 0 ? (unsigned)cores : 1;
}

/* The number behind "Name:" in the text of /proc/meminfo, or 0. */
static uint64_t find_kb(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

unsigned machine_available_percent(int meminfo_fd)
{
    char text[512]; /* the first lines */
    ssize_t n = pread(meminfo_fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    uint64_t total = find_kb(text, "MemTotal:");
    uint64_t available = find_kb(text, "MemAvailable:");
    return total && available ? (unsigned)(available * 100 / total) : 100;
}

/* The number in a file; UINT64_MAX when the file says "max" or does not exist. */
static uint64_t read_number(const char *path)
{
    char text[64];
    uint64_t number;
    if (fs_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return UINT64_MAX;
    text[strcspn(text, "\n")] = '\0';
    return str_parse_u64(text, &number) == 0 ? number : UINT64_MAX;
}

/* The smallest value of the file `name` in a control group and in the groups above it. `path`
 * comes from /proc/self/cgroup and lies below the mount point `top`. */
static uint64_t least_limit(const char *top, const char *path, const char *name)
{
    cleanup_free char *dir = xasprintf("%s%s", top, path);
    size_t top_len = strlen(top);
    uint64_t least = UINT64_MAX;
    for (;;) {
        cleanup_free char *file = xasprintf("%s/%s", dir, name);
        uint64_t limit = read_number(file);
        if (limit < least)
            least = limit;
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= top_len || !slash)
            return least;
        *slash = '\0';
    }
}

/* The limit that our own control groups set: `v1_name` in the v1 hierarchy of `controller`,
 * `v2_name` in the unified hierarchy. UINT64_MAX when there is none. */
static uint64_t cgroup_limit(const char *controller, const char *v1_name, const char *v2_name)
{
    char text[8192];
    uint64_t least = UINT64_MAX;
    char *save = NULL;
    if (fs_read_small(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
        return least;
    cleanup_free char *v1_top = xasprintf("/sys/fs/cgroup/%s", controller);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        uint64_t limit = UINT64_MAX;
        if (names[1] == '\0')
            limit = least_limit("/sys/fs/cgroup", path, v2_name);
        else if (str_eq(names + 1, controller))
            limit = least_limit(v1_top, path, v1_name);
        least = limit < least ? limit : least;
    }
    return least;
}

uint64_t machine_memory_mb(void)
{
    char text[4096];
    (void)fs_read_small(AT_FDCWD, "/proc/meminfo", text, sizeof(text)); /* "" on failure */
    uint64_t total = find_kb(text, "MemTotal:") / 1024;
    uint64_t limit = cgroup_limit("memory", "memory.limit_in_bytes", "memory.max") >> 20;
    return limit < total ? limit : total;
}

uint64_t machine_processes(void)
{
    const uint64_t limits[] = {read_number("/proc/sys/kernel/pid_max"),
        read_number("/proc/sys/kernel/threads-max"),
        cgroup_limit("pids", "pids.max", "pids.max")};
    uint64_t least = 32768; /* the default of every kernel, for a /proc without these files */
    bool is_known = false;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (limits[i] == UINT64_MAX || (is_known && limits[i] >= least))
            continue;
        least = limits[i];
        is_known = true;
    }
    return least;
}
