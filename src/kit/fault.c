/* SPDX-License-Identifier: Apache-2.0 */

/* Only in hermes-network-faulty, the build for tests. The file `kit-fault` beside the program
 * holds the number of a part, which then fails with EIO. Tests change it while the program
 * runs. */

#include "kit/kit.h"

#include "base/cleanup.h"
#include "base/os/fs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int fault_error(enum kit_part part)
{
    char text[8] = "";
    cleanup_free char *path = fs_beside_self("kit-fault");
    cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return 0;
    return strtol(text, NULL, 10) == (long)part ? -EIO : 0;
}
