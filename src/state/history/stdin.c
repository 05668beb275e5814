/* SPDX-License-Identifier: Apache-2.0 */

/* See history.h. Standard input that comes while a run is under way. It is a pipe: the run
 * copies what is in it into its box, and the capacity of the pipe bounds what waits there. */

#include "state/history/internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void stdin_close(struct history_run *run)
{
    close_fd(&run->stdin_read_fd);
    close_fd(&run->stdin_write_fd);
}

int history_open_stdin(struct history_run *run, int *ret_fd, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for this run; try again later");
    (void)pthread_mutex_lock(&run->history->lock);
    run->stdin_read_fd = *ret_fd = fds[0];
    run->stdin_write_fd = fds[1];
    (void)pthread_mutex_unlock(&run->history->lock);
    return 0;
}

/* Lock held. */
static int take_stdin(struct history_run *run, struct err *err)
{
    if (run->is_over)
        return err_set(err, ERR_CONFLICT, EPIPE, "the run is over already");
    if (run->stdin_write_fd < 0)
        return err_set(err, ERR_CONFLICT, EBADF,
            "the standard input of this run is not open; start the run with stdin_open");
    if (run->stdin_is_taken)
        return err_set(
            err, ERR_CONFLICT, EBUSY, "another request is writing to this run; wait for it");
    int fd = fcntl(run->stdin_write_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for this request; try again later");
    run->stdin_is_taken = true;
    return fd;
}

int history_stdin_begin(struct history_run *run, struct err *err)
{
    (void)pthread_mutex_lock(&run->history->lock);
    int fd = take_stdin(run, err);
    (void)pthread_mutex_unlock(&run->history->lock);
    return fd;
}

void history_stdin_end(struct history_run *run, int fd, bool eof)
{
    (void)close(fd);
    (void)pthread_mutex_lock(&run->history->lock);
    run->stdin_is_taken = false;
    if (eof)
        close_fd(&run->stdin_write_fd);
    (void)pthread_mutex_unlock(&run->history->lock);
}
