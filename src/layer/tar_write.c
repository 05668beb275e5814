/* SPDX-License-Identifier: Apache-2.0 */

/* See tar_write.h. A header is a struct of text fields; a field that does not fit goes into the
 * records of an extended header in front of it. */

#include "layer/tar_write.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The largest size that eleven octal digits can say. */
static const uint64_t plain_size_max = (UINT64_C(1) << 33) - 1;

struct header {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char time[12];
    char sum[8];
    char type;
    char link[100];
    char magic[8]; /* "ustar", a NUL and the version "00" */
    char user[32];
    char group[32];
    char device_major[8];
    char device_minor[8];
    char prefix[155];
    char rest[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a header is one block");

/* Octal digits with leading zeros and a NUL. */
static void put_number(char *field, size_t size, uint64_t value)
{
    field[size - 1] = '\0';
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

static int put_block(struct tar_writer *w, enum tar_type type, const char *path,
    const char *link, uint64_t size, mode_t mode)
{
    struct header h = {.type = (char)type,
        .magic = "ustar\0"
                 "00"};
    memcpy(h.name, path, strnlen(path, sizeof(h.name)));
    if (link)
        memcpy(h.link, link, strnlen(link, sizeof(h.link)));
    put_number(h.mode, sizeof(h.mode), mode);
    put_number(h.uid, sizeof(h.uid), 0);
    put_number(h.gid, sizeof(h.gid), 0);
    put_number(h.size, sizeof(h.size), size <= plain_size_max ? size : 0);
    put_number(h.time, sizeof(h.time), LAYER_TIME);
    put_number(h.device_major, sizeof(h.device_major), 0);
    put_number(h.device_minor, sizeof(h.device_minor), 0);
    put_number(h.sum, sizeof(h.sum) - 1, tar_sum((const uint8_t *)&h));
    h.sum[7] = ' ';
    return w->write(w->context, &h, sizeof(h));
}

/* "LENGTH key=value\n", where LENGTH counts its own digits too. */
static void add_record(char **records, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3;
    size_t len = rest + 1;
    while (len != rest + (size_t)snprintf(NULL, 0, "%zu", len))
        len++;
    char *longer = xasprintf("%s%zu %s=%s\n", *records ? *records : "", len, key, value);
    free(*records);
    *records = longer;
}

int tar_put_header(struct tar_writer *w, enum tar_type type, const char *path, const char *link,
    uint64_t size, mode_t mode)
{
    cleanup_free char *records = NULL;
    if (link && strlen(link) > TAR_NAME)
        add_record(&records, "linkpath", link);
    if (strlen(path) > TAR_NAME)
        add_record(&records, "path", path);
    if (size > plain_size_max) {
        char digits[24];
        (void)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)size);
        add_record(&records, "size", digits);
    }
    if (records) {
        size_t len = strlen(records);
        int r = put_block(w, 'x', "pax", NULL, len, 0644);
        if (r == 0)
            r = tar_put_data(w, records, len);
        if (r == 0)
            r = tar_put_pad(w, len);
        if (r < 0)
            return r;
    }
    return put_block(w, type, path, link, size, mode);
}

int tar_put_data(struct tar_writer *w, const void *data, size_t len)
{
    return len ? w->write(w->context, data, len) : 0;
}

int tar_put_pad(struct tar_writer *w, uint64_t size)
{
    static const uint8_t zeros[TAR_BLOCK];
    return tar_put_data(w, zeros, (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

int tar_put_file(struct tar_writer *w, const char *path, const void *data, size_t len)
{
    int r = tar_put_header(w, TAR_FILE, path, NULL, len, 0644);
    if (r == 0)
        r = tar_put_data(w, data, len);
    return r < 0 ? r : tar_put_pad(w, len);
}

int tar_put_end(struct tar_writer *w)
{
    static const uint8_t zeros[2 * TAR_BLOCK];
    return w->write(w->context, zeros, sizeof(zeros));
}
