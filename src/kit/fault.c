/* SPDX-License-Identifier: Apache-2.0 */

/* Only in hermes-network-faulty, the build for tests. The file `kit-fault` beside the program
 * holds the number of a part, which then fails with EIO. Tests change it while the program
 * runs. */

#include "kit/kit.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_beside(const char *name)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return -errno;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + strlen(name) + 2 > sizeof(path))
        return -ENAMETOOLONG;
    memcpy(slash + 1, name, strlen(name) + 1);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int fault_error(enum kit_part part)
{
    char text[8] = "";
    cleanup_close int fd = open_beside("kit-fault");
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return 0;
    return strtol(text, NULL, 10) == (long)part ? -EIO : 0;
}
