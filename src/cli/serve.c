/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are separate programs in the same directory: `hermes serve` executes
 * hermes-prepare, which becomes hermes-monitor; `hermes session` executes hermes-session. */

#include "cli/cli.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int become(const char *program, char **argv)
{
    struct err err = {0};
    const char *command = argv[0];
    cleanup_free char *path = fs_beside_self(program);
    argv[0] = (char *)program;
    if (path)
        (void)execv(path, argv);
    (void)err_set(&err, ERR_UNAVAILABLE, errno, "cannot start %s: %s; is it installed?",
        path ? path : program, strerror(errno));
    return cli_fail(command, &err);
}

int cmd_serve(int argc, char **argv)
{
    return become("hermes-prepare", argv);
}

int cmd_session(int argc, char **argv)
{
    return become("hermes-session", argv);
}
