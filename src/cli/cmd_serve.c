/* SPDX-License-Identifier: Apache-2.0 */

/* hermes serve: becomes hermes-monitor, which lies beside this program. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int cmd_serve(int argc, char **argv)
{
    char self[PATH_MAX];
    struct err err = {0};
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n < 0 ? 0 : n] = '\0';
    const char *slash = strrchr(self, '/');
    cleanup_free char *path =
        xasprintf("%.*s/hermes-monitor", slash ? (int)(slash - self) : 0, self);
    argv[0] = (char *)"hermes-monitor";
    (void)execv(path, argv);
    (void)err_set(&err, ERR_UNAVAILABLE, errno, "cannot start %s: %s; is it installed?", path,
        strerror(errno));
    return cli_fail("serve", &err);
}
