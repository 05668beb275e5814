/* SPDX-License-Identifier: Apache-2.0 */

#include "spawn/warm_maps.h"

#include "base/fs.h"
#include "spawn/zygote.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void warm_each_mapping(char text[WARM_MAPS_MAX],
    void (*found)(void *context, uintptr_t at, uintptr_t end), void *context)
{
    if (sysconf(_SC_PAGESIZE) != WARM_PAGE ||
        fs_read_small(ZYGOTE_STAGE_FD, "proc/self/maps", text, WARM_MAPS_MAX) <= 0)
        return;
    for (char *line = text, *next; *line; line = next) {
        unsigned long at;
        unsigned long end;
        char rights[5];
        next = strchr(line, '\n');
        next = next ? next + 1 : line + strlen(line);
        /* NOLINTNEXTLINE(cert-err34-c): numbers of the kernel's */
        if (sscanf(line, "%lx-%lx %4s", &at, &end, rights) == 3 && strcmp(rights, "rw-p") == 0)
            found(context, at, end);
    }
}
