/* SPDX-License-Identifier: Apache-2.0 */

/* See output.h. */

#include "cli/output.h"

#include "base/err.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void output_json(json_t *value, size_t flags)
{
    (void)json_dumpf(value, stdout, JSON_INDENT(2) | flags);
    (void)putchar('\n');
    json_decref(value);
}

int output_fail(const char *command, int error)
{
    if (error == EPIPE)
        return 128 + SIGPIPE;
    (void)fprintf(stderr, "%s: cannot write the output: %s\n", command, strerror(error));
    return err_table[ERR_NO_SPACE].exit_status;
}

int output_end(const char *command, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    /* An earlier write may have failed without an errno that we know. Another write shows the
     * reason. */
    return output_fail(command, write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO);
}
