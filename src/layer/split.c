/* SPDX-License-Identifier: Apache-2.0 */

/* See split.h. Nothing of the content is parsed here; the server reads the JSON members with
 * its own bounded parser. A name that comes twice is refused: two readers could take different
 * ones. */

#include "layer/split.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/strv.h"
#include "layer/tar_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The names of members that images are made of. */
static const char *const wanted[] = {
    "oci-layout",     /* OCI layout */
    "blobs/sha256/*", /* the same, and docker save since version 25 */
    "*.json",         /* index.json; docker save: manifest.json and the configuration */
    "*.tar",          /* layers of other programs' docker archives */
    "*/layer.tar",    /* layers of docker save */
};

struct splitter {
    int dir_fd;
    struct tar_reader tar;
    struct layer_limits limits;
    struct buf *list;
    struct strv names;
    unsigned files;
    uint64_t entries, bytes;
    struct err *err;
    uint8_t piece[LAYER_PIECE];
};

static bool is_plain(const char *name)
{
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/") ==
           strlen(name);
}

static bool is_wanted(const char *name)
{
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        if (str_glob_match(wanted[i], name))
            return is_plain(name);
    }
    return false;
}

static int too_large(struct splitter *s, const char *what, uint64_t limit)
{
    return err_set(s->err, ERR_TOO_LARGE, EFBIG,
        "the archive has more %s than allowed; the limit is %llu", what,
        (unsigned long long)limit);
}

static int write_member(struct splitter *s)
{
    char file[16];
    ssize_t n;
    if (s->tar.entry.size > s->limits.max_bytes - s->bytes)
        return too_large(s, "bytes", s->limits.max_bytes);
    s->bytes += s->tar.entry.size;
    (void)snprintf(file, sizeof(file), "%u", s->files);
    cleanup_close int fd = fs_open_beneath(s->dir_fd, file, O_WRONLY | O_CREAT | O_EXCL, 0644);
    int r = fd < 0 ? fd : 0;
    while (r == 0 && (n = tar_read_data(&s->tar, s->piece, sizeof(s->piece), s->err)) != 0) {
        if (n < 0)
            return (int)n;
        r = fs_write_all(fd, s->piece, (size_t)n);
    }
    return r < 0 ? err_set(s->err, r == -ENOSPC ? ERR_NO_SPACE : err_code_of(-r), -r,
                       "cannot write a member of the archive: %s", strerror(-r))
                 : 0;
}

/* The target of a symbolic link, from the top: "a/b" and "../c" give "c". False when it leads
 * out. */
static bool resolve(const char *name, const char *target, char out[static LAYER_PATH_MAX + 1])
{
    const char *slash = strrchr(name, '/');
    size_t n = slash && target[0] != '/' ? (size_t)(slash - name) : 0;
    memcpy(out, name, n);
    out[n] = '\0';
    while (str_has_prefix(target, "../")) {
        char *up = strrchr(out, '/');
        if (!*out)
            return false;
        *(up ? up : out) = '\0';
        target += 3;
    }
    cleanup_free char *joined = xasprintf("%s/%s", out, target);
    return strlen(joined) <= LAYER_PATH_MAX && !tar_clean_path(joined, out);
}

static int list_member(struct splitter *s, const char *name, const char *link)
{
    const char *comma = s->names.count > 1 ? "," : "";
    int r = link ? buf_printf(s->list, "%s{\"name\":\"%s\",\"link\":\"%s\"}", comma, name, link)
                 : buf_printf(s->list, "%s{\"name\":\"%s\",\"file\":%u,\"size\":%llu}", comma,
                       name, s->files++, (unsigned long long)s->tar.entry.size);
    return r < 0 ? too_large(s, "names", SPLIT_LIST_MAX) : 0;
}

static int take_entry(struct splitter *s)
{
    const struct tar_entry *e = &s->tar.entry;
    char name[LAYER_PATH_MAX + 1], link[LAYER_PATH_MAX + 1];
    bool is_link = e->type == TAR_SYMLINK || e->type == TAR_HARD_LINK;
    if (++s->entries > s->limits.max_entries)
        return too_large(s, "entries", s->limits.max_entries);
    if (tar_clean_path(e->path, name) || !is_wanted(name) || (!is_link && e->type != TAR_FILE))
        return 0;
    if (strv_has(&s->names, name))
        return err_set(s->err, ERR_INVALID, EINVAL, "the archive has %s twice", name);
    if (s->names.count == SPLIT_MEMBERS_MAX)
        return too_large(s, "members of images", SPLIT_MEMBERS_MAX);
    if (is_link) {
        bool is_inside = e->type == TAR_SYMLINK ? resolve(name, e->link, link)
                                                : !tar_clean_path(e->link, link);
        if (!is_inside || !is_wanted(link))
            return err_set(s->err, ERR_INVALID, EINVAL,
                "%s of the archive is a link to what is not a member of an image", name);
    }
    strv_add(&s->names, name);
    int r = is_link ? 0 : write_member(s);
    return r < 0 ? r : list_member(s, name, is_link ? link : NULL);
}

int layer_split(int dir_fd, layer_source *read, void *context,
    const struct layer_limits *limits, struct buf *list, struct err *err)
{
    cleanup_free struct splitter *s = xcalloc(1, sizeof(*s));
    s->dir_fd = dir_fd;
    s->tar = (struct tar_reader){.read = read, .context = context};
    s->limits = *limits;
    s->list = list;
    s->err = err;
    int r = buf_append_str(list, "{\"members\":["), more = 0;
    while (r == 0 && (more = tar_next(&s->tar, err)) > 0)
        r = take_entry(s);
    if (r == 0 && (r = more) == 0)
        r = tar_drain(&s->tar, err);
    strv_done(&s->names);
    return r < 0 ? r : buf_append_str(list, "]}\n");
}
