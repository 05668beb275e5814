/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Background jobs: child processes of the shell, and orphans that this process has adopted from
 * an earlier shell, each with all its descendants. A job's id is its process id. */

#include <sys/types.h>

#include "base/buf.h"

/* Appends the jobs as a JSON list. Jobs that do not fit are left out. */
void jobs_list(struct buf *b, pid_t shell);

/* Ends a job and its descendants. -ESRCH when there is no job with this id. */
int jobs_end(pid_t shell, pid_t id, unsigned grace_ms);
