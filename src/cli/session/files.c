/* SPDX-License-Identifier: Apache-2.0 */

/* See files.h. A download goes to a temporary file beside its target and is renamed when it is
 * complete. */

#include "cli/session/files.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The path "/files/PATH?QUERY" of a session. */
static char *file_path(const char *id, const char *path, const char *query, struct err *err)
{
    cleanup_free char *escaped = client_escape(path);
    cleanup_free char *below = xasprintf("/files/%s%s", escaped, query);
    if (!path[0]) {
        (void)err_field(err, "PATH", "the path is empty");
        return NULL;
    }
    return client_path(id, below, err);
}

static int local_error(const char *path, struct err *err)
{
    return err_set(err, ERR_INVALID, errno, "%s: %s", path, strerror(errno));
}

int files_put(const struct client *client, const char *id, const char *local, const char *path,
    struct err *err)
{
    bool is_stdin = str_eq(local, "-");
    struct stat st;
    if (is_stdin && !path)
        return err_field(
            err, "PATH", "missing argument PATH: hermes session files put ID - PATH");
    cleanup_close int opened = is_stdin ? -1 : open(local, O_RDONLY | O_CLOEXEC);
    int fd = is_stdin ? STDIN_FILENO : opened;
    if (fd < 0 || fstat(fd, &st) < 0)
        return local_error(local, err);
    if (S_ISDIR(st.st_mode))
        return err_field(err, "FILE", "%s is a directory; name a file", local);
    bool is_file = S_ISREG(st.st_mode);
    bool is_dir = !path || str_has_suffix(path, "/");
    cleanup_free char *name =
        xasprintf("%s%s", path ? path : "", is_dir ? last_part(local) : "");
    cleanup_free char *to =
        file_path(id, name, is_file && st.st_mode & 0111 ? "?executable=true" : "", err);
    return to ? client_upload(client, to, fd, is_file && !is_stdin ? st.st_size : -1, err)
              : -EINVAL;
}

/* The archive path of a directory. *ret_name is the default name of the archive. */
static char *archive_path(
    const char *id, const char *path, const char *local, char **ret_name, struct err *err)
{
    size_t len = strlen(path);
    while (len && (path[len - 1] == '/' || (len == 1 && path[0] == '.')))
        len--;
    cleanup_free char *dir = xstrndup(path, len);
    cleanup_free char *escaped = client_escape(dir);
    bool is_zip = local && str_has_suffix(local, ".zip");
    cleanup_free char *below =
        xasprintf("/archive?format=%s&path=%s", is_zip ? "zip" : "tar", escaped);
    *ret_name = xasprintf("%s.tar", len ? last_part(dir) : "box");
    return client_path(id, below, err);
}

static int save(
    const struct client *client, const char *from, const char *local, struct err *err)
{
    unsigned mode;
    if (str_eq(local, "-"))
        return client_download(client, from, STDOUT_FILENO, &mode, err);
    cleanup_free char *part = xasprintf("%s.part", local);
    cleanup_close int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return local_error(part, err);
    int r = client_download(client, from, fd, &mode, err);
    if (r == 0 && mode & 0111)
        (void)fchmod(fd, 0755);
    if (r == 0 && rename(part, local) < 0)
        r = local_error(local, err);
    if (r < 0)
        (void)unlink(part);
    return r;
}

int files_get(const struct client *client, const char *id, const char *path, const char *local,
    struct err *err)
{
    cleanup_free char *name = NULL;
    bool is_dir = str_eq(path, ".") || str_has_suffix(path, "/");
    cleanup_free char *from =
        is_dir ? archive_path(id, path, local, &name, err) : file_path(id, path, "", err);
    if (!from)
        return -EINVAL;
    return save(client, from, local ? local : name ? name : last_part(path), err);
}

int files_list(const struct client *client, const char *id, const char *dir, bool recursive,
    json_t **ret, struct err *err)
{
    cleanup_free char *escaped = client_escape(dir);
    cleanup_free char *below =
        xasprintf("/files?recursive=%s&path=%s", recursive ? "true" : "false", escaped);
    cleanup_free char *path = client_path(id, below, err);
    return path ? client_call(client, "GET", path, NULL, ret, err) : -EINVAL;
}

int files_remove(const struct client *client, const char *id, const char *path, bool recursive,
    struct err *err)
{
    json_t *nothing = NULL;
    cleanup_free char *from = file_path(id, path, recursive ? "?recursive=true" : "", err);
    int r = from ? client_call(client, "DELETE", from, NULL, &nothing, err) : -EINVAL;
    json_decref(nothing);
    return r;
}
