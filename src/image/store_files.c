/* SPDX-License-Identifier: Apache-2.0 */

/* See store_files.h. */

#include "image/store_files.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STALE_S = 60 };

DIR *store_files_dir(int dir_fd, const char *path)
{
    int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        close_fd(&fd);
    return dir;
}

const char *store_files_next(DIR *dir)
{
    struct dirent *entry;
    while ((entry = readdir(dir)) && entry->d_name[0] == '.')
        ;
    return entry ? entry->d_name : NULL;
}

static int write_new(int dir_fd, const char *name, const char *text, size_t len)
{
    cleanup_close int fd =
        openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int r = fs_write_all(fd, text, len);
    return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

int store_files_write(
    int dir_fd, const char *dir, const char *name, const char *text, size_t len)
{
    char temporary[ID_MAX];
    id_make(".new-", temporary);
    cleanup_close int in = openat(dir_fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0)
        return -errno;
    int r = write_new(in, temporary, text, len);
    if (r == 0 && renameat(in, temporary, in, name) < 0)
        r = -errno;
    if (r == 0 && fsync(in) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(in, temporary, 0);
    return r;
}

static int fill_layer(int dir_fd, int new_fd, const char *size)
{
    int r = renameat(dir_fd, "incoming/tree", new_fd, "tree") < 0 ? -errno : 0;
    if (r == 0)
        r = write_new(new_fd, "size", size, strlen(size));
    if (r == 0 && syncfs(new_fd) < 0)
        r = -errno;
    return r;
}

int store_files_stage_layer(
    int dir_fd, int layers_fd, const char *size, char ret_temporary[ID_MAX])
{
    id_make(".new-", ret_temporary);
    if (mkdirat(layers_fd, ret_temporary, 0755) < 0)
        return -errno;
    cleanup_close int fd =
        openat(layers_fd, ret_temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? -errno : fill_layer(dir_fd, fd, size);
    if (r < 0)
        (void)fs_remove_tree(layers_fd, ret_temporary);
    return r;
}

int store_files_name_layer(int layers_fd, const char *temporary, const char *hex)
{
    int r = renameat(layers_fd, temporary, layers_fd, hex) < 0 ? -errno : 0;
    return r == 0 && fsync(layers_fd) < 0 ? -errno : r;
}

static int lock_layer(int layers_fd, const char *hex, int how)
{
    cleanup_free char *path = xasprintf("%s/tree", hex);
    cleanup_close int fd =
        openat(layers_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, how | LOCK_NB) < 0)
        return -errno;
    return take_fd(&fd);
}

int store_files_lock(int layers_fd, const char *hex)
{
    return lock_layer(layers_fd, hex, LOCK_EX);
}

int store_files_share(int layers_fd, const char *hex)
{
    return lock_layer(layers_fd, hex, LOCK_SH);
}

int store_files_discard(int layers_fd, const char *hex, char ret_temporary[ID_MAX])
{
    id_make(".old-", ret_temporary);
    return renameat(layers_fd, hex, layers_fd, ret_temporary) < 0 ? -errno : 0;
}

void store_files_sweep(int dir_fd, const char *dir)
{
    cleanup_closedir DIR *d = store_files_dir(dir_fd, dir);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        struct stat st;
        if (entry->d_name[0] == '.' && !str_eq(entry->d_name, ".") &&
            !str_eq(entry->d_name, "..") &&
            fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - st.st_mtim.tv_sec > STALE_S)
            (void)fs_remove_tree(dirfd(d), entry->d_name);
    }
}
