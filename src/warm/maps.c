/* SPDX-License-Identifier: Apache-2.0 */

#include "warm/maps.h"

#include "base/fs.h"
#include "proto/zygote.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void warm_each_mapping(char text[WARM_MAPS_MAX],
    void (*found)(void *context, const struct warm_mapping *m), void *context)
{
    if (sysconf(_SC_PAGESIZE) != WARM_PAGE ||
        fs_read_small(ZYGOTE_STAGE_FD, "proc/self/maps", text, WARM_MAPS_MAX) <= 0)
        return;
    for (char *line = text, *next; *line; line = next) {
        struct warm_mapping m;
        char rights[5]; /* rwxp */
        next = strchr(line, '\n');
        next = next ? next + 1 : line + strlen(line);
        /* NOLINTNEXTLINE(cert-err34-c): numbers of the kernel's */
        if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu", &m.at, &m.end, rights, &m.inode) != 4 ||
            rights[0] != 'r' || rights[3] != 'p')
            continue;
        m.is_writable = rights[1] == 'w';
        m.is_code = rights[2] == 'x';
        found(context, &m);
    }
}
