/* SPDX-License-Identifier: Apache-2.0 */

/* See tar.h: sums of headers, and paths. */

#include "layer/tar.h"

#include <stdio.h>
#include <string.h>

uint32_t tar_sum(const uint8_t block[static TAR_BLOCK])
{
    uint32_t sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= TAR_SUM_AT && i < TAR_SUM_AT + 8 ? ' ' : block[i];
    return sum;
}

const char *tar_clean_path(const char *path, char out[static LAYER_PATH_MAX + 1])
{
    size_t n = 0;
    int depth = 0;
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len == 2 && path[0] == '.' && path[1] == '.')
            return "it leads out of the layer";
        if (len > 255)
            return "a name is longer than 255 bytes";
        if (len && !(len == 1 && path[0] == '.')) {
            if (++depth > LAYER_DEPTH_MAX)
                return "it has too many levels of directories";
            if (n + (n > 0) + len > LAYER_PATH_MAX)
                return "it is too long";
            if (n)
                out[n++] = '/';
            memmove(out + n, path, len);
            n += len;
        }
        path += len;
        path += strspn(path, "/");
    }
    out[n] = '\0';
    return NULL;
}

const char *layer_show(const char *path, char out[static 256])
{
    size_t n = 0;
    for (; *path && n < 240; path++) {
        if (*path >= ' ' && *path < 0x7f && *path != '\\')
            out[n++] = *path;
        else
            n += (size_t)snprintf(out + n, 5, "\\x%02x", (unsigned char)*path);
    }
    (void)snprintf(out + n, 256 - n, "%s", *path ? "..." : "");
    return out;
}
