/* SPDX-License-Identifier: Apache-2.0 */

/* See input.h. One buffer of packed bytes feeds one of three decoders, chosen by the first
 * bytes. A stream that ends in the middle of its packing is refused, and so is one that goes on
 * behind it with something else. */

#include "layer/input.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { MAGIC_MAX = 6, ZSTD_WINDOW_LOG = 27 };

struct decoder;

struct layer_input {
    layer_source *read;
    void *context;
    struct err *err;
    const struct decoder *decoder; /* NULL until the first bytes are there */
    z_stream gzip;
    ZSTD_DStream *zstd;
    bool is_ended;   /* no packed byte follows */
    bool is_between; /* the last packed piece is complete */
    uint64_t max_bytes, bytes;
    struct sha256_ctx hash;
    size_t from, to; /* packed bytes that wait in `packed` */
    uint8_t packed[LAYER_PIECE];
};

struct decoder {
    const char *name;
    uint8_t magic[MAGIC_MAX];
    size_t magic_len;
    int (*start)(struct layer_input *in);
    /* Turns packed bytes into plain ones. Returns how many, which may be none, or -EINVAL. */
    ssize_t (*decode)(struct layer_input *in, void *data, size_t len);
};

static int bad(struct layer_input *in, const char *why)
{
    return err_set(in->err, ERR_INVALID, EINVAL, "cannot unpack the %s stream: %s",
        in->decoder ? in->decoder->name : "archive's", why);
}

static int start_plain(struct layer_input *in)
{
    in->is_between = true;
    return 0;
}

static ssize_t decode_plain(struct layer_input *in, void *data, size_t len)
{
    size_t n = in->to - in->from < len ? in->to - in->from : len;
    memcpy(data, in->packed + in->from, n);
    in->from += n;
    return (ssize_t)n;
}

static int start_gzip(struct layer_input *in)
{
    return inflateInit2(&in->gzip, 15 + 16) == Z_OK ? 0 : -ENOMEM; /* 16: gzip only */
}

static ssize_t decode_gzip(struct layer_input *in, void *data, size_t len)
{
    z_stream *z = &in->gzip;
    if (in->is_between && inflateReset(z) != Z_OK) /* another piece follows */
        return -EINVAL;
    z->next_in = in->packed + in->from;
    z->avail_in = (uInt)(in->to - in->from);
    z->next_out = data;
    z->avail_out = len < LAYER_PIECE ? (uInt)len : LAYER_PIECE;
    const uInt room = z->avail_out;
    int r = inflate(z, Z_NO_FLUSH);
    in->from = in->to - z->avail_in;
    in->is_between = r == Z_STREAM_END;
    if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
        return bad(in, "it is damaged");
    return (ssize_t)(room - z->avail_out);
}

static int start_zstd(struct layer_input *in)
{
    in->zstd = ZSTD_createDStream();
    if (!in->zstd)
        return -ENOMEM;
    (void)ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG);
    return 0;
}

static ssize_t decode_zstd(struct layer_input *in, void *data, size_t len)
{
    ZSTD_inBuffer from = {in->packed + in->from, in->to - in->from, 0};
    ZSTD_outBuffer to = {data, len, 0};
    size_t r = ZSTD_decompressStream(in->zstd, &to, &from);
    if (ZSTD_isError(r))
        return bad(in, ZSTD_getErrorName(r));
    in->from += from.pos;
    in->is_between = r == 0;
    return (ssize_t)to.pos;
}

static int start_unknown(struct layer_input *in)
{
    return bad(in, "only gzip, zstd and none are supported; pack it again");
}

/* The first whose magic fits. */
static const struct decoder decoders[] = {
    {"gzip", {0x1f, 0x8b}, 2, start_gzip, decode_gzip},
    {"zstd", {0x28, 0xb5, 0x2f, 0xfd}, 4, start_zstd, decode_zstd},
    {"xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6, start_unknown, NULL},
    {"bzip2", {'B', 'Z', 'h'}, 3, start_unknown, NULL},
    {"plain", {0}, 0, start_plain, decode_plain},
};

/* Reads packed bytes until there are `least`, or until the end. */
static int fill(struct layer_input *in, size_t least)
{
    if (in->from == in->to)
        in->from = in->to = 0;
    while (in->to - in->from < least && !in->is_ended) {
        ssize_t n = in->read(in->context, in->packed + in->to, sizeof(in->packed) - in->to);
        if (n < 0)
            return (int)n;
        in->is_ended = n == 0;
        in->to += (size_t)n;
    }
    return 0;
}

/* A tar file whose first name begins like a gzip stream is a tar file. */
static bool is_tar(const struct layer_input *in)
{
    char field[8] = "";
    if (in->to < TAR_BLOCK)
        return false;
    memcpy(field, in->packed + TAR_SUM_AT, sizeof(field) - 1);
    return field[0] && strtoul(field, NULL, 8) == tar_sum(in->packed);
}

static int choose(struct layer_input *in)
{
    int r = fill(in, TAR_BLOCK);
    if (r < 0)
        return r;
    const struct decoder *d = decoders;
    while (is_tar(in)
               ? d->magic_len > 0
               : d->magic_len > in->to || memcmp(in->packed, d->magic, d->magic_len) != 0)
        d++;
    in->decoder = d;
    return d->start(in);
}

struct layer_input *layer_input_new(
    layer_source *read, void *context, uint64_t max_bytes, struct err *err)
{
    struct layer_input *in = xcalloc(1, sizeof(*in));
    in->read = read;
    in->context = context;
    in->max_bytes = max_bytes;
    in->err = err;
    sha256_init(&in->hash);
    return in;
}

void layer_input_free(struct layer_input *in)
{
    if (!in)
        return;
    (void)inflateEnd(&in->gzip); /* accepts a stream that never began */
    (void)ZSTD_freeDStream(in->zstd);
    free(in);
}

ssize_t layer_input_read(void *input, void *data, size_t len)
{
    struct layer_input *in = input;
    int r = in->decoder ? 0 : choose(in);
    ssize_t n = 0;
    while (r == 0 && n == 0 && (r = fill(in, 1)) == 0) {
        bool is_dry = in->from == in->to;
        if (is_dry && in->is_between)
            return 0;
        n = in->decoder->decode(in, data, len); /* dry: it may still hold plain bytes */
        if (is_dry && n == 0)
            return bad(in, "it ends too early");
    }
    if (r < 0 || n < 0)
        return r < 0 ? r : n;
    in->bytes += (uint64_t)n;
    if (in->bytes > in->max_bytes)
        return err_set(in->err, ERR_TOO_LARGE, EFBIG,
            "the archive has more bytes than allowed; the limit is %llu in plain form",
            (unsigned long long)in->max_bytes);
    sha256_update(&in->hash, (size_t)n, data);
    return n;
}

void layer_input_digest(struct layer_input *in, char out[static 65])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_digest(&in->hash, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), out);
}

ssize_t layer_read_fd(void *fd, void *data, size_t len)
{
    ssize_t n;
    do {
        n = read(*(int *)fd, data, len);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}
