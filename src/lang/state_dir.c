/* SPDX-License-Identifier: Apache-2.0 */

#include "lang/state_dir.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *choose_path(const char *named)
{
    const char *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");

    if (named != NULL && named[0] != '\0')
        return xstrdup(named);
    if (geteuid() == 0)
        return xstrdup("/var/lib/hermes");
    if (xdg != NULL && xdg[0] == '/')
        return xasprintf("%s/hermes", xdg);
    return home != NULL && home[0] == '/' ? xasprintf("%s/.local/state/hermes", home) : NULL;
}

int state_dir_open(const char *named, char **ret_path, struct err *err)
{
    cleanup_free char *path = choose_path(named);

    if (path == NULL)
        return err_set(err, ERR_UNAVAILABLE, ENOENT,
            "there is no HOME for the state directory; set HERMES_STATE_DIR");
    cleanup_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        /* Parents get the usual mode; the directory itself is for its owner only. */
        int r = fs_mkdirs(AT_FDCWD, path, 0755);
        if (r == 0)
            fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        else
            errno = -r;
        if (fd >= 0 && fchmod(fd, 0700) < 0)
            close_fd(&fd);
    }
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_uid != geteuid() || (st.st_mode & 022) != 0))
        return err_set(err, ERR_UNAVAILABLE, EPERM,
            "the state directory %s must belong to you and be writable by nobody else (chown, "
            "chmod 700), since what it holds is believed; or set HERMES_STATE_DIR",
            path);
    char *real = fd >= 0 ? realpath(path, NULL) : NULL;
    if (real == NULL)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "cannot use the state directory %s: %s; set HERMES_STATE_DIR", path,
            strerror(errno));
    *ret_path = real;
    return take_fd(&fd);
}
