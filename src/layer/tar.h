/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The layer format (docs/images.md): what the packer and the unpacker agree on. A layer is a
 * directory; as a stream it is a tar file. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    TAR_BLOCK = 512,
    TAR_SUM_AT = 148,        /* where the sum of a header is: 8 bytes */
    TAR_NAME = 100,          /* bytes of a name or of a link's target in a plain header */
    TAR_PAX_MAX = 1 << 20,   /* bytes of one extended header */
    LAYER_TIME = 315532800,  /* 1980-01-01: the time of every file of a layer */
    LAYER_PATH_MAX = 4095,   /* bytes of a path and of a link's target */
    LAYER_DEPTH_MAX = 128,   /* levels of directories */
    LAYER_PIECE = 128 * 1024 /* bytes that are read or written at once */
};

/* A file with this prefix in its name deletes the name behind the prefix; LAYER_OPAQUE hides
 * the whole directory of the layers below. whiteout.h has the form on disk. */
#define LAYER_WHITEOUT ".wh."
#define LAYER_OPAQUE ".wh..wh..opq"

/* Takes all bytes: 0 or negative errno. */
typedef int layer_sink(void *context, const void *data, size_t len);

/* Gives at most len (> 0) bytes: how many, 0 at the end, or negative errno. */
typedef ssize_t layer_source(void *context, void *data, size_t len);

enum tar_type {
    TAR_FILE = '0',
    TAR_HARD_LINK = '1',
    TAR_SYMLINK = '2',
    TAR_CHAR_DEVICE = '3',
    TAR_BLOCK_DEVICE = '4',
    TAR_DIRECTORY = '5',
    TAR_FIFO = '6',
};

/* The sum of a header's bytes, with spaces for the sum itself. */
uint32_t tar_sum(const uint8_t block[static TAR_BLOCK]);

/* Turns "./a//b/" into "a/b" and "/a" into "a". Returns NULL when the path is one a layer may
 * have ("" for the top), else what is wrong with it. out may be path. */
const char *tar_clean_path(const char *path, char out[static LAYER_PATH_MAX + 1]);

/* "a/b" with bytes that are not printable ASCII as \xNN, cut to the length that fits into a
 * message. Returns out. */
const char *layer_show(const char *path, char out[static 256]);
