/* SPDX-License-Identifier: Apache-2.0 */

/* See maps.h. The kernel escapes a newline in a name and nothing else, so a newline is the
 * end of a line. A line without one is not whole. */

#include "fork/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 16384, NUMBERS = 6 };

int fork_maps_open(int proc_fd, FILE **ret)
{
    int fd = openat(proc_fd, "maps", O_RDONLY | O_CLOEXEC);
    *ret = fd < 0 ? NULL : fdopen(fd, "r");
    if (*ret)
        return 0;
    int r = -errno;
    if (fd >= 0)
        (void)close(fd);
    return r;
}

int fork_maps_next(FILE *maps, struct mapping *ret)
{
    static char line[LINE_MAX_BYTES];
    unsigned major_number;
    unsigned minor_number;
    int name_at = 0;
    *ret = (struct mapping){0};
    if (!fgets(line, sizeof(line), maps))
        return ferror(maps) ? -EIO : 0;
    size_t len = strlen(line);
    if (!len || line[len - 1] != '\n')
        return -E2BIG;
    line[len - 1] = '\0';
    /* NOLINTNEXTLINE(cert-err34-c): numbers of the kernel's */
    int found = sscanf(line, "%lx-%lx %4s %*x %x:%x %lu %n", &ret->from, &ret->to, ret->mode,
        &major_number, &minor_number, &ret->inode, &name_at);
    if (found != NUMBERS || !name_at)
        return -EPROTO;
    ret->device = makedev(major_number, minor_number);
    ret->name = line + name_at;
    return 1;
}
