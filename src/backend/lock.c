/* SPDX-License-Identifier: Apache-2.0 */

/* Places that several sessions use: one name, one hash of their settings, and a lock that each
 * of them holds. */

#include "backend/backend.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

enum { LOCK_STEP_MS = 50 };

/* hermes-ROW-HASH for a place that is kept: one for each caller. Otherwise the session's own.
 */
void backend_place_name(const struct backend *b, char name[PLACE_TEXT])
{
    struct sha256_ctx hash;
    uint8_t digest[8];
    char hex[2 * sizeof(digest) + 1];
    const char *const parts[] = {
        b->instance, b->row->name, b->row->keeps ? b->request.owner : b->id};
    sha256_init(&hash);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        sha256_update(&hash, strlen(parts[i]) + 1, (const uint8_t *)parts[i]);
    sha256_digest(&hash, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
    (void)snprintf(name, PLACE_TEXT, "hermes-%s-%s", b->row->name, hex);
}

void backend_config_hash(const struct backend *b, char hex[BACKEND_HASH])
{
    const char *const parts[] = {b->row->command, b->row->image, b->row->network};
    const struct place_limits *limits = &b->request.limits;
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;
    sha256_init(&hash);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        sha256_update(&hash, strlen(parts[i]) + 1, (const uint8_t *)parts[i]);
    sha256_update(&hash, sizeof(limits->value), (const uint8_t *)limits->value);
    sha256_digest(&hash, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
}

int backend_lock(const struct backend *b, uint64_t until_ms, int *ret_fd)
{
    char name[PLACE_TEXT];
    backend_place_name(b, name);
    cleanup_free char *path = xasprintf("%s/.lock-%s", b->control_dir, name);
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    while (flock(fd, LOCK_SH | LOCK_NB) < 0) {
        struct pollfd gone = {b->watch_fd, 0, 0};
        if (clock_ms() >= until_ms)
            return -ETIMEDOUT;
        if (poll(&gone, 1, LOCK_STEP_MS) > 0)
            return -ECANCELED;
    }
    *ret_fd = take_fd(&fd);
    return 0;
}

bool backend_is_last(int lock_fd)
{
    return flock(lock_fd, LOCK_EX | LOCK_NB) == 0;
}
