/* SPDX-License-Identifier: Apache-2.0 */

/* See ids.h. Byte N of the lock file, locked, claims block N. For root the file is
 * /run/hermes/uids. A rootless range belongs to its user, so the file is in that user's
 * run-time directory. The locks belong to the open file description: they go when the spawner
 * ends, however it ends. */

#include "spawn/ids.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/sys.h"
#include "spawn/program.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the search for a free range ends, below 2^31. */
enum { FURTHEST_BASE = 2000000000 };
enum { DEFAULT_BASE = 2000000, DEFAULT_COUNT = 65536, ALL_SLOTS = (1 << SLOTS_PER_BLOCK) - 1 };

/* 1 or 0, or negative errno: a wrong guess would give boxes wrong ids. */
static int have_admin(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0)
        return -errno;
    return geteuid() == 0 && (data[0].effective & (1u << CAP_SYS_ADMIN)) &&
           (data[0].effective & (1u << CAP_SETUID)) && (data[0].effective & (1u << CAP_SETGID));
}

/* Reads the numbers of a line, separated by any of `seps`; false unless there are `count`. */
static bool read_numbers(char *line, const char *seps, uint64_t *ret, size_t count)
{
    char *save = NULL;
    char *word = strtok_r(line, seps, &save);
    for (size_t i = 0; i < count; i++, word = strtok_r(NULL, seps, &save)) {
        if (!word || str_parse_u64(word, &ret[i]) < 0)
            return false;
    }
    return true;
}

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
        if (read_numbers(line, " ", map, 3) && map[2] > *ret_count) {
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
        if (colon && read_numbers(colon + 1, ":", range, 2) && range[0] < first + count &&
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
static int choose_range(struct ids *ids, uint32_t base, uint32_t count)
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
    ids->base = (uid_t)want;
    ids->blocks_in_range = (uint32_t)(want_count / ((uint64_t)IDS_PER_SLOT * SLOTS_PER_BLOCK));
    return ids->blocks_in_range ? 0 : -ERANGE;
}

/* Opens the lock file in a directory that only its owner may write to. */
static int open_lock(const char *dir)
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

static int open_user_lock(uid_t uid)
{
    char dir[64];
    (void)snprintf(dir, sizeof(dir), "/run/user/%u", uid);
    bool run = access(dir, W_OK) == 0;
    (void)snprintf(dir, sizeof(dir), run ? "/run/user/%u/hermes" : "/tmp/hermes-%u", uid);
    return open_lock(dir);
}

static int map_self_alone(uid_t uid, gid_t gid)
{
    char map[48];
    int r = fs_write_once(AT_FDCWD, "/proc/self/setgroups", "deny");
    if (r < 0)
        return r;
    (void)snprintf(map, sizeof(map), "0 %u 1", uid);
    if ((r = fs_write_once(AT_FDCWD, "/proc/self/uid_map", map)) < 0)
        return r;
    (void)snprintf(map, sizeof(map), "0 %u 1", gid);
    return fs_write_once(AT_FDCWD, "/proc/self/gid_map", map);
}

/* newuidmap must run outside the new user namespace. So hermes-setup is started before
 * unshare(), and runs it when the namespace exists. Without subordinate ids that fails. */
static int map_subordinate(
    struct ids *ids, int setup_fd, uid_t uid, gid_t gid, bool *ret_unshared)
{
    const struct setup_order order = {.protocol = SPAWN_PROTOCOL,
        .job = SETUP_MAP_IDS,
        .pid = getpid(),
        .uid = uid,
        .gid = gid};
    int fds[SETUP_FD_COUNT] = {[1 ... SETUP_FD_COUNT - 1] = -1};
    int pair[2];
    cleanup_close int lock = open_user_lock(uid);
    if (lock < 0)
        return lock;
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    cleanup_close int theirs = pair[0];
    cleanup_close int go = pair[1];
    fds[SETUP_GO_FD - SETUP_ORDER_FD] = theirs;
    int pid = program_setup(setup_fd, &order, fds);
    if (pid < 0)
        return pid;
    *ret_unshared = unshare(CLONE_NEWUSER) == 0;
    bool is_sent = *ret_unshared && write(go, "g", 1) == 1;
    close_fd(&go);
    int r = program_wait(pid);
    if (r < 0 || !is_sent)
        return r < 0 ? r : -EPERM;
    ids->lock_fd = take_fd(&lock);
    return 0;
}

static int enter_userns(struct ids *ids, int setup_fd)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    bool unshared = false;
    int r = map_subordinate(ids, setup_fd, uid, gid, &unshared);
    ids->unique = r == 0;
    ids->reason = r;
    if (r < 0) {
        if (!unshared && unshare(CLONE_NEWUSER) < 0)
            return -errno;
        r = map_self_alone(uid, gid);
        if (r < 0)
            return r;
    }
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return -errno;
    if (ids->unique)
        (void)setgroups(0, NULL);
    return 0;
}

int ids_open(struct ids *ids, int setup_fd, uint32_t uid_base, uint32_t uid_count)
{
    int r = have_admin();
    *ids = (struct ids){.lock_fd = -1, .rootless = r == 0};
    if (r < 0)
        return r;
    if (ids->rootless) {
        r = enter_userns(ids, setup_fd);
        if (r < 0 || !ids->unique)
            return r;
        return choose_range(ids, 1, uid_count ? uid_count : DEFAULT_COUNT - 1);
    }
    if (setgroups(0, NULL) < 0)
        return -errno;
    r = choose_range(ids, uid_base, uid_count);
    if (r < 0)
        return r;
    r = open_lock("/run/hermes");
    if (r < 0)
        return r;
    ids->lock_fd = r;
    ids->unique = true;
    return 0;
}

/* Claims one more block. The search starts at a place that depends on the pid, so that
 * instances seldom collide. */
static int claim_block(struct ids *ids)
{
    if (ids->block_count == MAX_BLOCKS)
        return -EAGAIN;
    uint32_t start = (uint32_t)getpid() * 7 + ids->block_count;
    for (uint32_t i = 0; i < ids->blocks_in_range; i++) {
        uint32_t n = (start + i) % ids->blocks_in_range;
        struct flock lock = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)n, .l_len = 1};
        bool ours = false;
        for (unsigned k = 0; k < ids->block_count; k++)
            ours = ours || ids->blocks[k].number == n;
        if (ours || fcntl(ids->lock_fd, F_OFD_SETLK, &lock) < 0)
            continue;
        ids->blocks[ids->block_count++] = (struct id_block){.number = n};
        return 0;
    }
    return -EAGAIN;
}

int ids_claim(struct ids *ids, bool whole_block)
{
    if (!ids->unique)
        return 0;
    for (;;) {
        for (unsigned k = 0; k < ids->block_count; k++) {
            struct id_block *b = &ids->blocks[k];
            if (whole_block && !b->used) {
                b->used = ALL_SLOTS;
                return (int)(b->number * SLOTS_PER_BLOCK);
            }
            for (int s = 0; !whole_block && s < SLOTS_PER_BLOCK; s++) {
                if (!(b->used & (1u << s))) {
                    b->used |= 1u << s;
                    return (int)(b->number * SLOTS_PER_BLOCK) + s;
                }
            }
        }
        int r = claim_block(ids);
        if (r < 0)
            return r;
    }
}

void ids_release(struct ids *ids, int slot, bool whole_block)
{
    for (unsigned k = 0; ids->unique && k < ids->block_count; k++) {
        if (ids->blocks[k].number == (uint32_t)slot / SLOTS_PER_BLOCK)
            ids->blocks[k].used &= whole_block ? 0 : ~(1u << (slot % SLOTS_PER_BLOCK));
    }
}

uid_t ids_payload(const struct ids *ids, int slot)
{
    return ids->unique ? ids->base + (uid_t)slot * IDS_PER_SLOT + 1 : 0;
}

int ids_map(const struct ids *ids, int slot, bool whole_block, int proc_pid_fd)
{
    char map[64];
    uid_t payload = ids_payload(ids, slot);
    if (ids->unique)
        (void)snprintf(map, sizeof(map), "%d %u 1\n%d %u %d", BOX_INIT_ID, payload - 1,
            BOX_PAYLOAD_ID, payload, whole_block ? SPAWN_MAX_FORKS + 1 : 1);
    else
        (void)snprintf(map, sizeof(map), "%d 0 1", BOX_PAYLOAD_ID);
    int r = fs_write_once(proc_pid_fd, "setgroups", "deny");
    if (r < 0 || (r = fs_write_once(proc_pid_fd, "uid_map", map)) < 0)
        return r;
    return fs_write_once(proc_pid_fd, "gid_map", map);
}
