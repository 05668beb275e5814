/* SPDX-License-Identifier: Apache-2.0 */

#include "lang/state_dir.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How a directory is found and what it is called. */
struct dir_kind {
    const char *what;
    const char *variable; /* that names it */
    const char *of_root;
    const char *xdg;     /* the variable with the directory above it, for other users */
    const char *in_home; /* or the path below HOME */
};
static const struct dir_kind state_kind = {
    "state", "HERMES_STATE_DIR", "/var/lib/hermes", "XDG_STATE_HOME", ".local/state/hermes"};
static const struct dir_kind seed_kind = {
    "seed", "HERMES_SEED_DIR", "/var/cache/hermes", "XDG_CACHE_HOME", ".cache/hermes"};

static char *choose_path(const struct dir_kind *kind, const char *named)
{
    const char *xdg = getenv(kind->xdg);
    const char *home = getenv("HOME");

    if (named != NULL && named[0] != '\0')
        return xstrdup(named);
    if (geteuid() == 0)
        return xstrdup(kind->of_root);
    if (xdg != NULL && xdg[0] == '/')
        return xasprintf("%s/hermes", xdg);
    return home != NULL && home[0] == '/' ? xasprintf("%s/%s", home, kind->in_home) : NULL;
}

static int open_kind(
    const struct dir_kind *kind, const char *named, char **ret_path, struct err *err)
{
    cleanup_free char *path = choose_path(kind, named);

    if (path == NULL)
        return err_set(err, ERR_UNAVAILABLE, ENOENT,
            "HOME is not set, so the %s directory is not known; set %s", kind->what,
            kind->variable);
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
            "the %s directory %s must belong to you and be writable by nobody else (chown, "
            "chmod 700), since Hermes trusts its contents; or set %s",
            kind->what, path, kind->variable);
    char *real = fd >= 0 ? realpath(path, NULL) : NULL;
    if (real == NULL)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "cannot use the %s directory %s: %s; set %s", kind->what, path, strerror(errno),
            kind->variable);
    *ret_path = real;
    return take_fd(&fd);
}

int state_dir_open(const char *named, char **ret_path, struct err *err)
{
    return open_kind(&state_kind, named, ret_path, err);
}

int seed_dir_open(const char *named, char **ret_path, struct err *err)
{
    return open_kind(&seed_kind, named, ret_path, err);
}
