/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are programs of their own, which lie beside this one: `hermes serve` becomes
 * hermes-monitor, `hermes session` hermes-session. */

#include "cli/cli.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static int become(const char *program, char **argv)
{
    char self[PATH_MAX];
    struct err err = {0};
    const char *command = argv[0];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n < 0 ? 0 : n] = '\0';
    const char *slash = strrchr(self, '/');
    cleanup_free char *path =
        xasprintf("%.*s/%s", slash ? (int)(slash - self) : 0, self, program);
    argv[0] = (char *)program;
    (void)execv(path, argv);
    (void)err_set(&err, ERR_UNAVAILABLE, errno, "cannot start %s: %s; is it installed?", path,
        strerror(errno));
    return cli_fail(command, &err);
}

int cmd_serve(int argc, char **argv)
{
    return become("hermes-monitor", argv);
}

int cmd_session(int argc, char **argv)
{
    return become("hermes-session", argv);
}
