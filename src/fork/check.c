/* SPDX-License-Identifier: Apache-2.0 */

/* Checks the copy from outside while it cannot run (spawn/copy.h). What it may have is listed
 * here; everything else is refused. */

#include "fork/fork.h"

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "fork/maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Lines of /proc/PID/status that have to be there. */
static const char *const status_lines[] = {
    "\nCapInh:\t0000000000000000\n",
    "\nCapPrm:\t0000000000000000\n",
    "\nCapEff:\t0000000000000000\n",
    "\nCapAmb:\t0000000000000000\n",
    "\nNoNewPrivs:\t1\n",
    "\nSeccomp:\t2\n",
    "\nThreads:\t1\n",
};

enum { MEMORY_DEVICES = 1 };

/* Whether the copy has no controlling terminal: /dev/tty would lead there. In /proc/PID/stat
 * the name of the program, which may be anything, is followed by state, parent, group, session,
 * terminal. */
static int check_terminal(const struct fork_work *w)
{
    char text[1024];
    int r = (int)fs_read_small(w->proc_fd, "stat", text, sizeof(text));
    const char *at = r < 0 ? NULL : strrchr(text, ')');
    for (int i = 0; at && i < 5; i++)
        at = strchr(at + 1, ' ');
    if (!at)
        return r < 0 ? r : -EPROTO;
    return strncmp(at, " 0 ", 3) == 0 ? 0 : -EPERM;
}

static int differs(const struct fork_work *w, const char *name)
{
    char path[48];
    struct stat own;
    struct stat original;
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", w->parent_pid, name);
    if (fstatat(w->proc_fd, name, &own, 0) < 0 || stat(path, &original) < 0)
        return -errno;
    return own.st_ino != original.st_ino ? 0 : -EPERM;
}

/* Whether all four user and group ids are the copy's own, seen from the host, and it is in no
 * other group. */
static bool has_own_ids(const struct fork_work *w, const char *text)
{
    char lines[128];
    unsigned id = w->order.uid;
    (void)snprintf(lines, sizeof(lines), "\nUid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\n", id,
        id, id, id, id, id, id, id);
    return strstr(text, lines) && strstr(text, "\nGroups:\t \n");
}

/* Whether the copy has as many filters as box init. All processes of the box inherit theirs
 * from it. */
static int check_filters(const struct fork_work *w, const char *text)
{
    static const char name[] = "\nSeccomp_filters:\t";
    char path[32];
    char init[8192];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", w->init_pid);
    int r = (int)fs_read_small(AT_FDCWD, path, init, sizeof(init));
    if (r < 0)
        return r;
    const char *own = strstr(text, name);
    const char *whole = strstr(init, name);
    size_t len = whole ? strcspn(whole + 1, "\n") + 2 : 0;
    return own && whole && strncmp(own, whole, len) == 0 ? 0 : -EPERM;
}

int fork_check_rights(const struct fork_work *w)
{
    char text[8192];
    int r = (int)fs_read_small(w->proc_fd, "status", text, sizeof(text));
    if (r < 0)
        return r;
    if (!has_own_ids(w, text) || (r = check_filters(w, text)) < 0)
        return r < 0 ? r : -EPERM;
    for (size_t i = 0; i < sizeof(status_lines) / sizeof(status_lines[0]); i++) {
        if (!strstr(text, status_lines[i]))
            return -EPERM;
    }
    if ((r = check_terminal(w)) < 0 || (r = differs(w, "ns/user")) < 0 ||
        (r = differs(w, "ns/mnt")) < 0 || !w->order.is_alone)
        return r;
    return (r = differs(w, "ns/net")) < 0 ? r : differs(w, "ns/ipc");
}

/* Devices of the three file systems of the original, and of the copy. */
struct places {
    dev_t original[3];
    dev_t own[3];
};

static bool has(const dev_t devices[3], dev_t device)
{
    return devices[0] == device || devices[1] == device || devices[2] == device;
}

static int find_places(const struct fork_work *w, struct places *ret)
{
    static const char *const names[] = {"root/box", "root/tmp", "root/dev/shm"};
    for (int i = 0; i < 3; i++) {
        struct stat original;
        struct stat own;
        if (fstat(w->from_fds[i], &original) < 0 || fstatat(w->proc_fd, names[i], &own, 0) < 0)
            return -errno;
        ret->original[i] = original.st_dev;
        ret->own[i] = own.st_dev;
    }
    return has(ret->original, ret->own[0]) || has(ret->original, ret->own[1]) ||
                   has(ret->original, ret->own[2])
               ? -EPERM
               : 0;
}

/* Whether the copy may keep this descriptor. A directory outside its own file systems leads to
 * those of the original, because it belongs to the original's mounts. A regular file outside is
 * harmless if it is read-only; but all copies of a template would share its position, so a run
 * has none. Files of /proc may be the original's memory. */
static bool is_harmless(
    const struct fork_work *w, const struct places *places, const struct stat *st, int fd)
{
    struct statfs fs;
    if (has(places->own, st->st_dev))
        return S_ISREG(st->st_mode) || S_ISDIR(st->st_mode);
    if (has(places->original, st->st_dev) || fstatfs(fd, &fs) < 0)
        return false;
    if (S_ISCHR(st->st_mode)) /* null, zero and the like; a terminal would be shared */
        return major(st->st_rdev) == MEMORY_DEVICES;
    return S_ISREG(st->st_mode) && !w->order.is_run && fs.f_flags & ST_RDONLY &&
           fs.f_type != PROC_SUPER_MAGIC;
}

static int check_descriptor(
    const struct fork_work *w, const struct places *places, int dir_fd, const char *name)
{
    struct stat st;
    cleanup_close int fd = openat(dir_fd, name, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    const uint64_t *ends = w->order.ends;
    if (S_ISFIFO(st.st_mode) && (st.st_ino == ends[0] || st.st_ino == ends[1]))
        return 0;
    if (S_ISSOCK(st.st_mode) && (st.st_ino == ends[2] || st.st_ino == ends[3]))
        return 0;
    return is_harmless(w, places, &st, fd) ? 0 : -EPERM;
}

static int check_descriptors(const struct fork_work *w, const struct places *places)
{
    int fd = openat(w->proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return -errno;
    int r = 0;
    const struct dirent *entry;
    while (r == 0 && (errno = 0, entry = readdir(dir))) {
        if (entry->d_name[0] != '.')
            r = check_descriptor(w, places, fd, entry->d_name);
    }
    return r < 0 ? r : -errno; /* a list that ends early would hide descriptors */
}

static int check_cwd(const struct fork_work *w, const struct places *places)
{
    struct stat st;
    if (fstatat(w->proc_fd, "cwd", &st, 0) < 0)
        return -errno;
    return has(places->original, st.st_dev) ? -EPERM : 0;
}

/* Shared memory is not copied by a fork: only memory that no process can write to may be
 * shared. */
static bool is_mapping_ok(const struct places *places, const struct mapping *m)
{
    return m->mode[3] != 's' || (m->mode[1] != 'w' && !str_has_suffix(m->name, " (deleted)") &&
                                    !has(places->original, m->device));
}

static int check_mappings(const struct fork_work *w, const struct places *places)
{
    struct mapping m;
    cleanup_fclose FILE *maps = NULL;
    int r = fork_maps_open(w->proc_fd, &maps);
    if (r < 0)
        return r;
    while ((r = fork_maps_next(maps, &m)) > 0) {
        if (!is_mapping_ok(places, &m))
            return -EPERM;
    }
    return r;
}

int fork_check_reach(const struct fork_work *w)
{
    struct places places = {0};
    int r = find_places(w, &places);
    if (r < 0 || (r = check_cwd(w, &places)) < 0 || (r = check_descriptors(w, &places)) < 0)
        return r;
    return check_mappings(w, &places);
}
