/* SPDX-License-Identifier: Apache-2.0 */

/* See tar_read.h. An entry is a header of 512 bytes, perhaps with headers in front that carry a
 * longer name, target or size (pax, or GNU's 'L' and 'K'). A value may come once from one
 * place: two paths for one entry are how archives hide a file from a checker. Values that a
 * layer does not keep (owners, times, attributes) are not looked at. */

#include "layer/tar_read.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Where the fields of a header are. */
enum {
    NAME_AT = 0,
    MODE_AT = 100,
    SIZE_AT = 124,
    TYPE_AT = 156,
    LINK_AT = 157,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_SIZE = 155,
};

/* What the headers in front of an entry say. */
struct extra {
    bool has_path, has_link, has_size, has_pax;
    uint64_t size;
};

static int bad(struct err *err, const char *why)
{
    return err_set(
        err, ERR_INVALID, EINVAL, "the archive is damaged or not a tar file: %s", why);
}

/* Exactly len bytes. Returns 1, or 0 at the end of the stream if no byte came before it. */
static int read_all(struct tar_reader *r, void *data, size_t len, struct err *err)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = r->read(r->context, (uint8_t *)data + done, len - done);
        if (n < 0)
            return err && err->code ? (int)n
                                    : err_set(err, err_code_of((int)-n), (int)-n,
                                          "cannot read the archive: %s", strerror((int)-n));
        if (n == 0)
            return done ? bad(err, "it ends too early") : 0;
        done += (size_t)n;
    }
    return 1;
}

static int skip(struct tar_reader *r, uint64_t len, struct err *err)
{
    uint8_t piece[4096];
    while (len > 0) {
        size_t want = len < sizeof(piece) ? (size_t)len : sizeof(piece);
        int got = read_all(r, piece, want, err);
        if (got <= 0)
            return got < 0 ? got : bad(err, "it ends too early");
        len -= want;
    }
    return 0;
}

/* Octal digits between spaces and NULs, or a binary number behind the byte 0x80. */
static int read_number(const uint8_t *field, size_t size, uint64_t *ret)
{
    uint64_t value = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80)
            return -EINVAL;
        for (i = 1; i < size; i++) {
            if (value >> 55)
                return -ERANGE;
            value = value << 8 | field[i];
        }
        *ret = value;
        return 0;
    }
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0'); /* at most twelve digits */
    for (; i < size; i++) {
        if (field[i] != ' ' && field[i] != '\0')
            return -EINVAL;
    }
    *ret = value;
    return 0;
}

static bool is_zero(const uint8_t *block)
{
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        if (block[i])
            return false;
    }
    return true;
}

/* A header, its sum checked. Returns 1, or 0 at the end of the archive. */
static int read_header(
    struct tar_reader *r, uint8_t block[static TAR_BLOCK], uint64_t *ret_size, struct err *err)
{
    uint64_t sum;
    int got = read_all(r, block, TAR_BLOCK, err);
    if (got <= 0)
        return got < 0 ? got : bad(err, "it ends without its end mark");
    if (is_zero(block))
        return 0;
    if (read_number(block + TAR_SUM_AT, 8, &sum) < 0 || sum != tar_sum(block))
        return bad(err, "the sum of a header is wrong");
    if (read_number(block + SIZE_AT, 12, ret_size) < 0)
        return bad(err, "a size is not a number");
    return 1;
}

static int copy_text(
    char out[static LAYER_PATH_MAX + 1], const void *text, size_t len, struct err *err)
{
    if (len > LAYER_PATH_MAX)
        return err_set(
            err, ERR_INVALID, EINVAL, "a path or link is longer than %d bytes", LAYER_PATH_MAX);
    if (memchr(text, '\0', len))
        return bad(err, "a path has a NUL byte");
    memcpy(out, text, len);
    out[len] = '\0';
    return 0;
}

/* Marks a value as given. It may be given once. */
static int claim(bool *has, struct err *err)
{
    if (*has)
        return bad(err, "a path, link or size is given twice");
    *has = true;
    return 0;
}

static int read_size(struct extra *x, const char *value, size_t len, struct err *err)
{
    char digits[24] = "";
    if (len == 0 || len >= sizeof(digits))
        return bad(err, "a size is not a number");
    memcpy(digits, value, len);
    if (str_parse_u64(digits, &x->size) < 0 || x->size > INT64_MAX)
        return bad(err, "a size is not a number");
    return 0;
}

static bool is_key(const char *key, size_t len, const char *word)
{
    return len == strlen(word) && memcmp(key, word, len) == 0;
}

static bool has_prefix(const char *key, size_t len, const char *prefix)
{
    return len >= strlen(prefix) && memcmp(key, prefix, strlen(prefix)) == 0;
}

static int take_record(struct tar_reader *r, struct extra *x, const char *key, size_t key_len,
    const char *value, size_t len, struct err *err)
{
    struct tar_entry *e = &r->entry;
    int ret = 0;
    if (is_key(key, key_len, "path")) {
        if ((ret = claim(&x->has_path, err)) == 0)
            ret = copy_text(e->path, value, len, err);
    } else if (is_key(key, key_len, "linkpath")) {
        if ((ret = claim(&x->has_link, err)) == 0)
            ret = copy_text(e->link, value, len, err);
    } else if (is_key(key, key_len, "size")) {
        if ((ret = claim(&x->has_size, err)) == 0)
            ret = read_size(x, value, len, err);
    } else if (has_prefix(key, key_len, "GNU.sparse.")) {
        ret = err_set(err, ERR_INVALID, EINVAL,
            "the archive has a sparse file; make it again without --sparse");
    } else if (has_prefix(key, key_len, "SCHILY.xattr.") ||
               has_prefix(key, key_len, "LIBARCHIVE.xattr.")) {
        e->attributes++;
    }
    return ret;
}

/* Records "LENGTH key=value\n". */
static int read_records(
    struct tar_reader *r, struct extra *x, const char *at, size_t left, struct err *err)
{
    while (left > 0) {
        size_t len = 0, digits = 0;
        while (digits < left && digits < 8 && at[digits] >= '0' && at[digits] <= '9')
            len = len * 10 + (size_t)(at[digits++] - '0');
        if (digits == 0 || digits >= left || at[digits] != ' ' || len > left ||
            len < digits + 3 || at[len - 1] != '\n')
            return bad(err, "an extended header has a wrong length");
        const char *key = at + digits + 1;
        const char *equals = memchr(key, '=', len - digits - 2);
        if (!equals || equals == key)
            return bad(err, "an extended header has no key");
        int ret = take_record(r, x, key, (size_t)(equals - key), equals + 1,
            (size_t)(at + len - 1 - (equals + 1)), err);
        if (ret < 0)
            return ret;
        at += len;
        left -= len;
    }
    return 0;
}

/* The content of a header in front of an entry; 'g' speaks of all entries and is left out, as
 * container programs do. */
static int read_extra(
    struct tar_reader *r, struct extra *x, char type, uint64_t size, struct err *err)
{
    if (size > TAR_PAX_MAX)
        return bad(err, "an extended header is too large");
    uint64_t padded = (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    if (type == 'g')
        return skip(r, padded, err);
    cleanup_free char *text = xmalloc((size_t)padded + 1);
    int got = read_all(r, text, (size_t)padded, err);
    if (got < 0 || (got == 0 && padded))
        return got < 0 ? got : bad(err, "it ends too early");
    int ret = 0;
    switch (type) {
    case 'x':
        if ((ret = claim(&x->has_pax, err)) == 0)
            ret = read_records(r, x, text, (size_t)size, err);
        break;
    case 'L':
        if ((ret = claim(&x->has_path, err)) == 0)
            ret = copy_text(r->entry.path, text, strnlen(text, (size_t)size), err);
        break;
    default: /* 'K' */
        if ((ret = claim(&x->has_link, err)) == 0)
            ret = copy_text(r->entry.link, text, strnlen(text, (size_t)size), err);
    }
    return ret;
}

/* Takes path and link target from the plain header, unless an extended header has set them. */
static void read_names(struct tar_entry *e, const struct extra *x, const uint8_t *block)
{
    const char *name = (const char *)block + NAME_AT, *link = (const char *)block + LINK_AT;
    const char *prefix = (const char *)block + PREFIX_AT;
    bool is_posix = memcmp(block + MAGIC_AT, "ustar", 6) == 0; /* GNU has other things there */
    if (!x->has_path) {
        size_t len = is_posix ? strnlen(prefix, PREFIX_SIZE) : 0;
        (void)snprintf(e->path, sizeof(e->path), "%.*s%s%.*s", (int)len, prefix, len ? "/" : "",
            (int)strnlen(name, TAR_NAME), name);
    }
    if (!x->has_link)
        (void)snprintf(e->link, sizeof(e->link), "%.*s", (int)strnlen(link, TAR_NAME), link);
}

static int read_entry(struct tar_reader *r, const struct extra *x, const uint8_t *block,
    uint64_t size, struct err *err)
{
    struct tar_entry *e = &r->entry;
    char type = (char)block[TYPE_AT];
    uint64_t mode;
    read_names(e, x, block);
    if (read_number(block + MODE_AT, 8, &mode) < 0)
        return bad(err, "a mode is not a number");
    e->mode = (mode_t)(mode & 07777);
    if (type == '\0' || type == '7') /* v7, and "contiguous" */
        type = '0';
    if (type < '0' || type > '6')
        return bad(err, type == 'S' ? "it has a sparse file; make it again without --sparse"
                                    : "an entry has an unknown type");
    if (type == '0' && str_has_suffix(e->path, "/"))
        type = '5'; /* so did v7 mark directories */
    e->type = (enum tar_type)type;
    if (x->has_size)
        size = x->size;
    if (e->type != TAR_FILE && size > 0) /* some readers skip it, others do not */
        return bad(err, "an entry that is not a file has content");
    e->size = size;
    if (e->type != TAR_HARD_LINK && e->type != TAR_SYMLINK)
        e->link[0] = '\0';
    r->left = e->size;
    r->pad = (TAR_BLOCK - e->size % TAR_BLOCK) % TAR_BLOCK;
    return 1;
}

int tar_next(struct tar_reader *r, struct err *err)
{
    struct extra x = {0};
    uint8_t block[TAR_BLOCK];
    int ret = skip(r, r->left, err);
    if (ret == 0)
        ret = skip(r, r->pad, err);
    if (ret < 0)
        return ret;
    r->left = r->pad = 0;
    r->entry.attributes = 0;
    for (bool in_front = false;;) {
        uint64_t size = 0;
        ret = read_header(r, block, &size, err);
        if (ret <= 0)
            return ret < 0 || !in_front ? ret : bad(err, "an extended header has no entry");
        char type = (char)block[TYPE_AT];
        if (type != 'x' && type != 'g' && type != 'L' && type != 'K')
            return read_entry(r, &x, block, size, err);
        in_front |= type != 'g';
        if ((ret = read_extra(r, &x, type, size, err)) < 0)
            return ret;
    }
}

ssize_t tar_read_data(struct tar_reader *r, void *data, size_t len, struct err *err)
{
    if (r->left == 0)
        return 0;
    size_t want = r->left < len ? (size_t)r->left : len;
    int got = read_all(r, data, want, err);
    if (got <= 0)
        return got < 0 ? got : bad(err, "it ends too early");
    r->left -= want;
    return (ssize_t)want;
}

int tar_drain(struct tar_reader *r, struct err *err)
{
    uint8_t piece[4096];
    ssize_t n;
    while ((n = r->read(r->context, piece, sizeof(piece))) > 0)
        ;
    if (n < 0 && !(err && err->code))
        return err_set(err, err_code_of((int)-n), (int)-n, "cannot read the archive: %s",
            strerror((int)-n));
    return (int)n;
}
