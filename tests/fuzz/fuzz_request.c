/* SPDX-License-Identifier: Apache-2.0 */

/* A request for a box as a taken-over server could send it, with descriptors of many kinds:
 * what is accepted stays within the sealed table, by a second look that shares no code with the
 * first. */

#include "spawn/image.h"
#include "spawn/request.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    KIND_PIPE,
    KIND_MEMFD,
    KIND_OPEN_MEMFD,
    KIND_NULL,
    KIND_SOCKET,
    KIND_CHANNEL,
    KIND_CLOSED,
    KIND_COUNT
};

/* This spawner has no images. The real one would bring the whole spawner along. */
bool image_exists(const struct spawner *s, uint32_t root)
{
    return false;
}

static struct spawner spawner;
static int kinds[KIND_COUNT];

static void prepare(void)
{
    int pair[2];
    spawner.sealed = true;
    spawner.root_count = 3;
    for (uint32_t i = 0; i < spawner.root_count; i++)
        spawner.roots[i].exec_count = i;
    spawner.source_count = 2;
    spawner.writable_sources[1] = true;
    spawner.setup.max = (struct spawn_limits){.memory_bytes = 1 << 20,
        .disk_bytes = 1 << 20,
        .file_bytes = 1 << 20,
        .stack_bytes = 1 << 20,
        .inodes = 100,
        .processes = 100,
        .open_files = 100,
        .cpu_milli = 100,
        .cpu_s = 100};
    if (pipe(pair) < 0)
        abort();
    kinds[KIND_PIPE] = pair[1];
    kinds[KIND_MEMFD] = memfd_create("job", MFD_ALLOW_SEALING);
    if (fcntl(kinds[KIND_MEMFD], F_ADD_SEALS, F_SEAL_WRITE) < 0)
        abort();
    kinds[KIND_OPEN_MEMFD] = memfd_create("job", MFD_ALLOW_SEALING);
    kinds[KIND_NULL] = open("/dev/null", O_RDWR);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
        abort();
    kinds[KIND_SOCKET] = pair[0];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        abort();
    kinds[KIND_CHANNEL] = pair[0];
    kinds[KIND_CLOSED] = -1;
}

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_accepted(const struct spawn_box *r, const uint8_t *kind, unsigned count)
{
    const struct spawn_limits *l = &r->limits;
    unsigned at = 4;
    const uint32_t both = BOX_COLLECT | BOX_CHANNEL;
    check(r->root < 3 && r->exec < r->root && !r->remove && r->flags < 64);
    check(!(r->flags & BOX_FORKS) || r->flags & BOX_CHANNEL);
    check((r->flags & both) != both);
    check(l->memory_bytes - 1 < 1 << 20 && l->disk_bytes - 1 < 1 << 20);
    check(l->file_bytes - 1 < 1 << 20 && l->stack_bytes - 1 < 1 << 20);
    check(l->inodes - 1 < 100 && l->processes - 1 < 100 && l->open_files - 1 < 100);
    check(l->cpu_milli - 1 < 100 && l->cpu_s - 1 < 100);
    check(kind[1] == KIND_MEMFD && kind[2] == KIND_PIPE && kind[3] == KIND_PIPE);
    if (r->flags & BOX_STDIN)
        check(kind[at] == KIND_PIPE || kind[at] == KIND_MEMFD);
    at += !!(r->flags & BOX_STDIN);
    if (r->flags & BOX_COLLECT)
        check(kind[at] == KIND_PIPE);
    at += !!(r->flags & BOX_COLLECT);
    if (r->flags & BOX_CHANNEL)
        check(kind[at] == KIND_CHANNEL);
    at += !!(r->flags & BOX_CHANNEL);
    if (r->flags & BOX_NETWORK)
        check(kind[at] == KIND_SOCKET);
    at += !!(r->flags & BOX_NETWORK);
    check(count == at && r->mount_count <= SPAWN_MAX_BOX_MOUNTS);
    for (uint32_t i = 0; i < r->mount_count; i++)
        check(r->mounts[i].source == 1 || (r->mounts[i].source == 0 && !r->mounts[i].writable));
}

/* One that is sound but for the bytes that the fuzzer lays over it: else it would have to find
 * nine limits first. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spawn_box request = {
        .kind = SPAWN_BOX, .root = 2, .exec = 1, .limits = {1, 1, 1, 1, 1, 1, 1, 1, 1, 0}};
    uint8_t kind[BOX_MAX_FDS] = {
        KIND_SOCKET, KIND_MEMFD, KIND_PIPE, KIND_PIPE, KIND_PIPE, KIND_PIPE};
    int fds[BOX_MAX_FDS];
    if (!spawner.sealed)
        prepare();
    unsigned count = size ? data[0] % (BOX_MAX_FDS + 1) : 4;
    size_t at = 1;
    for (; at + 2 < size && data[at] != 0xff; at += 3) {
        size_t offset =
            (data[at] | (size_t)data[at + 1] << 8) % (sizeof(request) + BOX_MAX_FDS);
        if (offset < sizeof(request))
            ((uint8_t *)&request)[offset] = data[at + 2];
        else
            kind[offset - sizeof(request)] = data[at + 2] % KIND_COUNT;
    }
    for (unsigned i = 0; i < BOX_MAX_FDS; i++)
        fds[i] = kinds[kind[i]];
    if (request_ok(&spawner, &request, fds, count))
        check_accepted(&request, kind, count);
    return 0;
}
