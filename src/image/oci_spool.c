/* SPDX-License-Identifier: Apache-2.0 */

/* See oci_spool.h. The canonical tar goes through a packer into the file. Level, header and
 * number of threads are fixed, so a layer gives the same blob again with the same library. */

#include "image/oci_spool.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "image/oci_archive.h"
#include "layer/pack.h"

#include <fcntl.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { GZIP_LEVEL = 6, ZSTD_LEVEL = 3, WINDOW_GZIP = 15 + 16, MEMORY_GZIP = 8 };

struct spool {
    int fd;
    const int *cancel_fd;
    struct sha256_ctx plain;
    z_stream gzip;
    ZSTD_CCtx *zstd;
    int (*put)(struct spool *s, const void *data, size_t len, bool is_last);
    uint8_t out[LAYER_PIECE];
};

static int put_plain(struct spool *s, const void *data, size_t len, bool is_last)
{
    return fs_write_all(s->fd, data, len);
}

static int put_gzip(struct spool *s, const void *data, size_t len, bool is_last)
{
    z_stream *z = &s->gzip;
    z->next_in = (Bytef *)data;
    z->avail_in = (uInt)len; /* pieces are small */
    do {
        z->next_out = s->out;
        z->avail_out = sizeof(s->out);
        if (deflate(z, is_last ? Z_FINISH : Z_NO_FLUSH) == Z_STREAM_ERROR)
            return -EIO;
        int r = fs_write_all(s->fd, s->out, sizeof(s->out) - z->avail_out);
        if (r < 0)
            return r;
    } while (z->avail_out == 0);
    return 0;
}

static int put_zstd(struct spool *s, const void *data, size_t len, bool is_last)
{
    ZSTD_inBuffer in = {data, len, 0};
    size_t left;
    do {
        ZSTD_outBuffer out = {s->out, sizeof(s->out), 0};
        left = ZSTD_compressStream2(s->zstd, &out, &in, is_last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
            return -EIO;
        int r = fs_write_all(s->fd, s->out, out.pos);
        if (r < 0)
            return r;
    } while (is_last ? left > 0 : in.pos < in.size);
    return 0;
}

static int start(struct spool *s, enum oci_packing packing)
{
    s->put = put_plain;
    if (packing == OCI_GZIP) {
        s->put = put_gzip;
        return deflateInit2(&s->gzip, GZIP_LEVEL, Z_DEFLATED, WINDOW_GZIP, MEMORY_GZIP,
                   Z_DEFAULT_STRATEGY) == Z_OK
                   ? 0
                   : -ENOMEM;
    }
    if (packing == OCI_ZSTD) {
        s->put = put_zstd;
        s->zstd = ZSTD_createCCtx();
        if (!s->zstd)
            return -ENOMEM;
        (void)ZSTD_CCtx_setParameter(s->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
        (void)ZSTD_CCtx_setParameter(s->zstd, ZSTD_c_checksumFlag, 1);
    }
    return 0;
}

static int take_plain(void *context, const void *data, size_t len)
{
    struct spool *s = context;
    struct pollfd cancel = {.fd = s->cancel_fd ? *s->cancel_fd : -1, .events = POLLIN};
    if (poll(&cancel, 1, 0) > 0)
        return -ECANCELED;
    sha256_update(&s->plain, len, data);
    return s->put(s, data, len, false);
}

static int spool_layer(struct spool *s, int layer_fd, struct oci_blob *ret, struct err *err)
{
    static const struct strv nothing;
    int r = layer_pack(layer_fd, &nothing, take_plain, s, err);
    if (r < 0)
        return r;
    oci_digest_end(&s->plain, ret->diff_id);
    r = s->put(s, "", 0, true);
    off_t size = r < 0 ? r : lseek(s->fd, 0, SEEK_CUR);
    if (r == 0 && size >= 0)
        r = oci_digest_fd(s->fd, ret->digest);
    if (r < 0 || size < 0)
        return err_set(err, err_code_of(r < 0 ? -r : errno), r < 0 ? -r : errno,
            "cannot write a layer for the export: %s", strerror(r < 0 ? -r : errno));
    ret->size = (uint64_t)size;
    return 0;
}

int oci_spool(const struct oci_export *x, int layer_fd, enum oci_packing packing,
    struct oci_blob *ret, struct err *err)
{
    cleanup_close int fd = openat(x->spool_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, err_code_of(errno), errno, "cannot make a file for the export: %s",
            strerror(errno));
    cleanup_free struct spool *s = xcalloc(1, sizeof(*s));
    s->fd = fd;
    s->cancel_fd = x->cancel_fd;
    sha256_init(&s->plain);
    int r = start(s, packing);
    if (r < 0)
        r = err_set(err, err_code_of(-r), -r, "cannot begin to pack a layer");
    else
        r = spool_layer(s, layer_fd, ret, err);
    (void)deflateEnd(&s->gzip); /* accepts a stream that never began */
    (void)ZSTD_freeCCtx(s->zstd);
    if (r == 0)
        ret->fd = take_fd(&fd);
    return r;
}
