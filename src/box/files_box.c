/* SPDX-License-Identifier: Apache-2.0 */

/* The file helper in a box: gives up all rights first, then serves requests. */

#include "box/inside.h"

#include "base/os/sys.h"
#include "box/files.h"
#include "box/landlock.h"
#include "proto/files.h"

#include <sys/socket.h>
#include <unistd.h>

static int keep_only(int fd)
{
    if (fd != 0 && (dup2(fd, 0) < 0))
        return -errno;
    return sys_close_range(1, ~0u, 0);
}

void files_run(const struct inside *in, int fd, uint64_t room_bytes)
{
    /* First of all: the helper of a copy comes from the spawner and holds all its
     * descriptors. */
    if (keep_only(fd) < 0 || drop_to_payload(in) < 0 ||
        landlock_restrict(in->landlock_abi, NULL, 0) < 0)
        _exit(1);
    files_serve(0, "/box", room_bytes);
}

void files_refuse(int fd, int error)
{
    const struct files_record end = {.kind = FILES_END, .error = error};
    (void)send(fd, &end, sizeof(end), MSG_NOSIGNAL | MSG_DONTWAIT);
}
