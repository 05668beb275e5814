/* SPDX-License-Identifier: Apache-2.0 */

/* Chooses the host ids of boxes, and opens the file with the locks by which instances share
 * them (spawn/ids.h). */

#include "setup/setup.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* DEFAULT_BASE, DEFAULT_COUNT: the range that is taken if nothing stands against it.
 * FURTHEST_BASE: where the search for a free range ends, below 2^31. */
enum { DEFAULT_BASE = 2000000, DEFAULT_COUNT = 65536, FURTHEST_BASE = 2000000000 };

/* First id and length of the widest range of ids that exist in our user namespace. */
static void widest_extent(uint64_t *ret_first, uint64_t *ret_count)
{
    char text[4096];
    *ret_first = *ret_count = 0;
    if (fs_read_small(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text)) < 0)
        return;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        uint64_t map[3]; /* inside, outside, count */
        if (setup_read_numbers(line, " ", map, 3) && map[2] > *ret_count) {
            *ret_first = map[0];
            *ret_count = map[2];
        }
    }
}

/* Returns the end of a range in `file` (/etc/subuid, /etc/subgid) that overlaps ours, or 0. Its
 * user, and containers of that user, would have the rights of a box. */
static uint64_t given_until(const char *file, uint64_t first, uint64_t count)
{
    static char text[65536];
    if (fs_read_small(AT_FDCWD, file, text, sizeof(text)) < 0)
        return 0;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *colon = strchr(line, ':');
        uint64_t range[2];
        if (colon && setup_read_numbers(colon + 1, ":", range, 2) && range[0] < first + count &&
            range[1] <= UINT32_MAX && first < range[0] + range[1])
            return range[0] + range[1];
    }
    return 0;
}

/* The first range that belongs to no user, in steps of DEFAULT_COUNT. So the ranges of two
 * instances are the same or share no id; each instance counts its blocks from the start of its
 * range. */
static uint64_t free_range(void)
{
    uint64_t base = DEFAULT_BASE;
    uint64_t end;
    while (base < FURTHEST_BASE && ((end = given_until("/etc/subuid", base, DEFAULT_COUNT)) ||
                                       (end = given_until("/etc/subgid", base, DEFAULT_COUNT))))
        base += (end - base + DEFAULT_COUNT - 1) / DEFAULT_COUNT * DEFAULT_COUNT;
    return base;
}

/* Chooses the range: the configured or the default one if its ids exist here, else the upper
 * half of the ids that exist (in a container with 65,536 ids, for example). */
int setup_choose_range(uint32_t base, uint32_t count, struct setup_answer *ret)
{
    uint64_t first;
    uint64_t have;
    widest_extent(&first, &have);
    uint64_t want = base ? base : free_range();
    uint64_t want_count = count ? count : DEFAULT_COUNT;
    if (want < first || want + want_count > first + have) {
        if (base)
            return -EINVAL;
        want = first + have / 2;
        want_count = have - have / 2;
    }
    if (want <= first)
        want = first + 1; /* the first id is the spawner's own */
    ret->uid_base = (uint32_t)want;
    ret->uid_count = (uint32_t)want_count;
    return want_count ? 0 : -ERANGE;
}

/* Opens the lock file in a directory that only its owner may write to. */
int setup_open_lock(const char *dir)
{
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return -errno;
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (dir_fd < 0 || fstat(dir_fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return -EPERM;
    int fd = openat(dir_fd, "uids", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}
