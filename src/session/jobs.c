/* SPDX-License-Identifier: Apache-2.0 */

/* Background jobs of a shell session: asks its interpreter while no exec is running. */

#include "session/internal.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* JOBS_MAX bounds the list that a hostile interpreter can make the server keep. */
enum { JOBS_MAX = 1024 };

static bool is_job(json_t *job)
{
    json_int_t id;
    json_int_t processes;
    const char *command;
    const char *state;
    return json_unpack(job, "{s:I, s:s, s:s, s:I !}", "id", &id, "command", &command, "state",
               &state, "processes", &processes) == 0;
}

static bool are_jobs(const json_t *list)
{
    bool ok = json_is_array(list) && json_array_size(list) <= JOBS_MAX;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = is_job(json_array_get(list, i));
    return ok;
}

static bool has_job(const json_t *jobs, const char *id)
{
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        char number[24];
        (void)snprintf(number, sizeof(number), "%lld",
            (long long)json_integer_value(json_object_get(json_array_get(jobs, i), "id")));
        if (str_eq(number, id))
            return true;
    }
    return false;
}

int session_jobs(struct session *s, const char *kill_id, json_t **ret, struct err *err)
{
    json_t *jobs = NULL;
    int r = session_take(s, false, false, -1, err);
    if (r < 0)
        return r;
    int asked = session_ask(s, "jobs", NULL, FRAME_JOBS, are_jobs, &jobs);
    bool is_known = !kill_id || has_job(jobs, kill_id);
    if (asked == 0 && kill_id && is_known) {
        json_decref(jobs);
        jobs = NULL;
        asked = session_ask(s, "kill_job", kill_id, FRAME_JOBS, are_jobs, &jobs);
    }
    r = session_asked(s, asked, err);
    if (r == 0 && !is_known)
        r = err_set(err, ERR_NOT_FOUND, ENOENT, "job %s not found; it may have ended", kill_id);
    if (r < 0)
        json_decref(jobs);
    else
        *ret = jobs;
    return r;
}
