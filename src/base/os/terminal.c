/* SPDX-License-Identifier: Apache-2.0 */

/* See terminal.h. */

#include "base/os/terminal.h"

#include <sys/ioctl.h>

int terminal_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}
