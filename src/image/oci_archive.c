/* SPDX-License-Identifier: Apache-2.0 */

/* The directory and the list that `hermes-layer split` left. Both come from a box, so numbers
 * are checked and names are only compared. The size of a member is that of its file. */

#include "image/oci_archive.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "json/read.h"

#include <fcntl.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/stat.h>

enum { MEMBERS_MAX = 1000 };

struct row {
    struct oci_member member;
    const char *link; /* the member that it stands for, or NULL */
};

struct oci_archive {
    int dir_fd;
    json_t *list; /* owns the names */
    struct row *rows;
    size_t count;
};

static int read_row(int dir_fd, const json_t *value, struct row *ret)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    const char *link = json_string_value(json_object_get(value, "link"));
    const json_t *file = json_object_get(value, "file");
    *ret = (struct row){.member.name = name, .link = link};
    if (!name || (!link && !json_is_integer(file)))
        return -EINVAL;
    if (link)
        return 0;
    json_int_t number = json_integer_value(file);
    if (number < 0 || number >= MEMBERS_MAX)
        return -EINVAL;
    ret->member.file = (unsigned)number;
    char path[16];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%u", ret->member.file);
    cleanup_close int fd = fs_open_beneath(dir_fd, path, O_RDONLY, 0);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -EINVAL;
    ret->member.size = (uint64_t)st.st_size;
    return 0;
}

int oci_archive_open(
    const char *list, size_t len, int dir_fd, struct oci_archive **ret, struct err *err)
{
    const char *problem;
    struct oci_archive *a = xcalloc(1, sizeof(*a));
    a->dir_fd = dir_fd;
    a->list = json_read_bounded(list, len, &problem);
    const json_t *members = json_object_get(a->list, "members");
    size_t count = json_array_size(members);
    bool is_good = json_is_array(members) && count <= MEMBERS_MAX;
    a->rows = xcalloc(count + 1, sizeof(*a->rows));
    for (; is_good && a->count < count; a->count++)
        is_good = read_row(dir_fd, json_array_get(members, a->count), &a->rows[a->count]) == 0;
    if (!is_good) {
        oci_archive_free(a);
        return err_set(
            err, ERR_INTERNAL, EBADMSG, "the list of the archive's members is wrong");
    }
    *ret = a;
    return 0;
}

void oci_archive_free(struct oci_archive *archive)
{
    if (!archive)
        return;
    free(archive->rows);
    json_decref(archive->list);
    free(archive);
}

static const struct row *find_row(const struct oci_archive *a, const char *name)
{
    for (size_t i = 0; i < a->count; i++) {
        if (str_eq(a->rows[i].member.name, name))
            return &a->rows[i];
    }
    return NULL;
}

const struct oci_member *oci_member_find(const struct oci_archive *a, const char *name)
{
    const struct row *row = find_row(a, name);
    if (row && row->link)
        row = find_row(a, row->link);
    return row && !row->link ? &row->member : NULL;
}

bool oci_is_digest(const char *text)
{
    return str_has_prefix(text, "sha256:") && strlen(text) == OCI_DIGEST_LEN &&
           strspn(text + 7, "0123456789abcdef") == 64;
}

void oci_digest_end(struct sha256_ctx *hash, char out[static OCI_DIGEST_LEN + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_digest(hash, sizeof(digest), digest);
    int n = snprintf(out, OCI_DIGEST_LEN + 1, "sha256:");
    str_hex(digest, sizeof(digest), out + n);
}

void oci_digest_text(const void *data, size_t len, char out[static OCI_DIGEST_LEN + 1])
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    sha256_update(&hash, len, data);
    oci_digest_end(&hash, out);
}

int oci_digest_fd(int fd, char out[static OCI_DIGEST_LEN + 1])
{
    cleanup_free uint8_t *piece = xmalloc(LAYER_PIECE);
    struct sha256_ctx hash;
    ssize_t n;
    off_t at = 0;
    sha256_init(&hash);
    while ((n = pread(fd, piece, LAYER_PIECE, at)) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0) {
            sha256_update(&hash, (size_t)n, piece);
            at += n;
        }
    }
    if (n < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    oci_digest_end(&hash, out);
    return 0;
}

static int open_member(const struct oci_archive *a, unsigned file, struct err *err)
{
    char path[16];
    (void)snprintf(path, sizeof(path), "%u", file);
    int fd = fs_open_beneath(a->dir_fd, path, O_RDONLY, 0);
    return fd < 0 ? err_set(err, err_code_of(-fd), -fd, "cannot read the archive: %s",
                        strerror(-fd))
                  : fd;
}

int oci_member_json(const struct oci_archive *a, const struct oci_member *m, const char *digest,
    json_t **ret, struct err *err)
{
    char found[OCI_DIGEST_LEN + 1];
    const char *problem;
    cleanup_buf struct buf text = {0};
    buf_init(&text, OCI_JSON_MAX);
    cleanup_close int fd = open_member(a, m->file, err);
    if (fd < 0)
        return fd;
    int r = fs_read_to_end(fd, 0, &text);
    if (r < 0)
        return err_set(err, r == -EMSGSIZE ? ERR_INVALID : err_code_of(-r), -r,
            r == -EMSGSIZE ? "%s of the archive is too large" : "cannot read %s of the archive",
            m->name);
    oci_digest_text(text.data ? text.data : "", text.len, found);
    if (digest && !str_eq(digest, found))
        return err_set(err, ERR_INVALID, EINVAL, "%s of the archive has another digest: %s",
            m->name, found);
    *ret = json_read_bounded(text.data ? text.data : "", text.len, &problem);
    return *ret ? 0
                : err_set(err, ERR_INVALID, EINVAL, "%s of the archive is not valid JSON: %s",
                      m->name, problem);
}

int oci_layer_open(
    const struct oci_archive *archive, const struct oci_layer *layer, struct err *err)
{
    char found[OCI_DIGEST_LEN + 1];
    struct stat st;
    cleanup_close int fd = open_member(archive, layer->file, err);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return err_set(err, err_code_of(errno), errno, "cannot read the archive");
    if ((uint64_t)st.st_size != layer->size)
        return err_set(err, ERR_INVALID, EINVAL, "layer %s of the archive has another size",
            layer->digest);
    int r = layer->digest[0] ? oci_digest_fd(fd, found) : 0;
    if (r < 0)
        return err_set(err, err_code_of(-r), -r, "cannot read the archive: %s", strerror(-r));
    if (layer->digest[0] && !str_eq(found, layer->digest))
        return err_set(err, ERR_INVALID, EINVAL,
            "layer %s of the archive has another digest: %s", layer->digest, found);
    return take_fd(&fd);
}

int oci_layer_check(
    const struct oci_layer *layer, const char *report, size_t len, struct err *err)
{
    const char *problem;
    json_t *value = json_read_bounded(report, len, &problem);
    const char *found = json_string_value(json_object_get(value, "diff_id"));
    int r = 0;
    if (!oci_is_digest(found))
        r = err_set(err, ERR_INTERNAL, EBADMSG, "the report of an unpacked layer is wrong");
    else if (!str_eq(found, layer->diff_id))
        r = err_set(err, ERR_INVALID, EINVAL,
            "the configuration of the image says another digest of a layer: %s, not %s",
            layer->diff_id, found);
    json_decref(value);
    return r;
}
