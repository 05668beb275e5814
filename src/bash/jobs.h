/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Background jobs: processes that hang below the shell, or below this process since their shell
 * is gone, each with all below it. The process id is the job's id. */

#include <sys/types.h>

#include "base/buf.h"

/* Appends them as a JSON list; those that do not fit are left out. */
void jobs_list(struct buf *b, pid_t shell);

/* Ends a job and all below it. -ESRCH when there is none of that id. */
int jobs_end(pid_t shell, pid_t id, unsigned grace_ms);
