/* SPDX-License-Identifier: Apache-2.0 */

/* See output.h. */

#include "cli/run/output.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "cli/output.h"
#include "network/entry.h"
#include "network/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_OUT "hermes-out"
#define COMMAND "hermes run"

/* Writes a collected file. The program chose the name, so the file stays below one directory,
 * which is not the working directory by default. Links are not followed and nothing becomes
 * executable: a program must not be able to plant a hook for its caller. */
static int save_file(int dir_fd, const struct run_file *file)
{
    const char *slash = strrchr(file->name, '/');
    cleanup_free char *parent = xstrndup(file->name, slash ? (size_t)(slash - file->name) : 0);
    int r = slash ? fs_mkdirs_beneath(dir_fd, parent, 0755) : 0;
    if (r < 0)
        return r;
    cleanup_close int fd =
        fs_open_beneath(dir_fd, file->name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    return fd < 0 ? fd : fs_write_all(fd, file->content, file->size);
}

/* Writes all files and reports each that could not be collected. Returns the first failure to
 * write one. */
static int save_files(const struct run_files *files, const char *dir, struct err *first)
{
    int made = fs_mkdirs(AT_FDCWD, dir, 0755);
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = 0;
    if (made < 0 || dir_fd < 0) {
        int error = made < 0 ? -made : errno;
        result =
            err_set(first, ERR_INVALID, error, "cannot write to %s: %s", dir, strerror(error));
        output_error_line(COMMAND, first);
        return result;
    }
    for (size_t i = 0; i < files->count; i++) {
        const struct run_file *file = &files->items[i];
        struct err err = {0};
        int r = file->error ? -EINVAL : save_file(dir_fd, file);
        if (r == 0)
            continue;
        (void)err_set(&err, ERR_INVALID, -r, "%s not collected: %s", file->name,
            file->error ? file->error : strerror(-r));
        output_error_line(COMMAND, &err);
        /* A file that the program made unreadable is the program's doing. */
        if (result == 0 && !file->error) {
            result = r;
            *first = err;
        }
    }
    return result;
}

static void write_stage(const struct stage_result *stage)
{
    (void)fs_write_all(STDERR_FILENO, stage->out.data, stage->out.len);
    (void)fs_write_all(STDERR_FILENO, stage->err.data, stage->err.len);
}

static void tell(const struct run_result *result)
{
    const struct stage_result *run = &result->run;
    struct err err = {0};
    if (run->status == RUN_COMPILE_ERROR)
        write_stage(&result->compile);
    if (run->status == RUN_SIGNALED)
        (void)err_set(&err, ERR_INVALID, 0, "killed by %s", run_signal_name(run->signal));
    else if (run->message[0])
        (void)err_set(&err, ERR_INVALID, 0, "%s", run->message);
    if (err.code)
        output_error_line(COMMAND, &err);
}

/* Shows at a terminal which hosts the program could not reach: the program itself may only
 * have said "not found". */
static void tell_denied(const struct network_report *network)
{
    enum { SHOWN = 5 };
    size_t count = 0;
    if (!network || !isatty(STDERR_FILENO))
        return;
    for (size_t i = 0; i < network->count; i++) {
        const struct network_row *row = &network->rows[i];
        if (row->is_allowed || ++count > SHOWN)
            continue;
        if (row->protocol == NETWORK_DNS)
            (void)fprintf(stderr, COMMAND ": network: the name %s was denied (%s)\n", row->host,
                network_reason_name(row->reason));
        else
            (void)fprintf(stderr, COMMAND ": network: %s port %u (%s) was denied (%s)\n",
                row->host, row->port, network_protocol_name(row->protocol),
                network_reason_name(row->reason));
    }
    if (count > SHOWN)
        (void)fprintf(
            stderr, COMMAND ": network: %zu more denied; --json lists them\n", count - SHOWN);
}

int run_output(const struct run_result *result, const char *out_dir, int cancel_signal)
{
    struct err err = {0};
    tell(result);
    tell_denied(result->run.network);
    int status = run_exit_status(result, cancel_signal);
    if (result->files.count &&
        save_files(&result->files, out_dir ? out_dir : DEFAULT_OUT, &err) < 0 && status == 0)
        status = err_table[err.code].exit_status;
    return status;
}
