/* SPDX-License-Identifier: Apache-2.0 */

/* See mount_fs.h. */

#include "box/mount_fs.h"

#include "base/cleanup.h"
#include "base/os/sys.h"

#include <stdio.h>

static int set_number(int fs_fd, const char *key, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return sys_fs_set(fs_fd, key, text);
}

int mount_fs_tmpfs(uint64_t bytes, uint64_t inodes, const char *mode, int owner, unsigned attrs)
{
    cleanup_close int fs = sys_fs_open("tmpfs");
    if (fs < 0)
        return fs;
    int r = 0;
    if (bytes)
        r = set_number(fs, "size", bytes);
    if (r == 0 && inodes)
        r = set_number(fs, "nr_inodes", inodes);
    if (r == 0 && owner >= 0 && (r = set_number(fs, "uid", (uint64_t)owner)) == 0)
        r = set_number(fs, "gid", (uint64_t)owner);
    if (r < 0 || (r = sys_fs_set(fs, "mode", mode)) < 0 || (r = sys_fs_create(fs)) < 0)
        return r;
    return sys_fs_mount(fs, attrs);
}

int mount_fs_devpts(unsigned max)
{
    cleanup_close int fs = sys_fs_open("devpts");
    if (fs < 0)
        return fs;
    int r;
    if ((r = set_number(fs, "max", max)) < 0 || (r = sys_fs_set(fs, "mode", "0600")) < 0 ||
        (r = sys_fs_set(fs, "ptmxmode", "0666")) < 0 || (r = sys_fs_create(fs)) < 0)
        return r;
    return sys_fs_mount(fs, ATTR_NOSUID | ATTR_NOEXEC);
}
