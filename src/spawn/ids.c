/* SPDX-License-Identifier: Apache-2.0 */

/* See ids.h. Byte N of the lock file, locked, claims block N. For root the file is
 * /run/hermes/uids. A rootless range belongs to its user, so the file is in that user's
 * run-time directory. The locks belong to the open file description: they go when the spawner
 * ends, however it ends. */

#include "spawn/ids.h"

#include "base/os/fs.h"
#include "base/os/sys.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

enum { ALL_SLOTS = (1 << SLOTS_PER_BLOCK) - 1 };

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
 * unshare(). Without subordinate ids this fails. */
static int map_subordinate(struct ids *ids, struct setup *setup, uid_t uid, gid_t gid)
{
    const struct setup_order order = {.kind = SETUP_MAP_IDS,
        .protocol = SPAWN_PROTOCOL,
        .pid = getpid(),
        .uid = uid,
        .gid = gid};
    struct setup_answer answer;
    unsigned count;
    int r = setup_start(setup);
    int unshared = unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
    if (r == 0 && unshared == 0)
        r = setup_call(setup, &order, sizeof(order), &answer, &ids->lock_fd, 1, &count);
    setup_end(setup); /* the next one is started in the namespace */
    ids->reason = r;
    return unshared;
}

static int enter_userns(struct ids *ids, struct setup *setup)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int r = map_subordinate(ids, setup, uid, gid);
    ids->unique = r == 0 && ids->reason == 0;
    if (r < 0 || (!ids->unique && (r = map_self_alone(uid, gid)) < 0))
        return r;
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return -errno;
    if (ids->unique)
        (void)setgroups(0, NULL);
    /* Only root may mount in the host's mount namespace, or return to it. */
    return unshare(CLONE_NEWNS) < 0 ? -errno : 0;
}

int ids_enter(struct ids *ids, struct setup *setup)
{
    int r = have_admin();
    *ids = (struct ids){.lock_fd = -1, .rootless = r == 0};
    if (r < 0)
        return r;
    if (ids->rootless)
        return enter_userns(ids, setup);
    return setgroups(0, NULL) < 0 ? -errno : 0;
}

bool ids_are_own(const struct ids *ids)
{
    return !ids->rootless || ids->unique;
}

int ids_set_range(struct ids *ids, const struct setup_answer *answer)
{
    bool is_needed = ids_are_own(ids);
    ids->base = answer->uid_base;
    ids->blocks_in_range = answer->uid_count / IDS_PER_BLOCK;
    ids->unique = ids->blocks_in_range > 0;
    return is_needed && !ids->unique ? -ERANGE : 0;
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

int ids_map(const struct ids *ids, int slot, uint32_t flags, int proc_pid_fd)
{
    char map[64];
    uid_t payload = ids_payload(ids, slot);
    bool is_root = flags & BOX_ROOT;
    if (ids->unique)
        (void)snprintf(map, sizeof(map), "%d %u 1\n%d %u %d", BOX_INIT_ID,
            is_root ? payload : payload - 1, BOX_PAYLOAD_ID, is_root ? payload - 1 : payload,
            flags & BOX_FORKS ? SPAWN_MAX_FORKS + 1 : 1);
    else
        (void)snprintf(map, sizeof(map), "%d 0 1", BOX_PAYLOAD_ID);
    int r = fs_write_once(proc_pid_fd, "setgroups", "deny");
    if (r < 0 || (r = fs_write_once(proc_pid_fd, "uid_map", map)) < 0)
        return r;
    return fs_write_once(proc_pid_fd, "gid_map", map);
}
