/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One box that is under way, for the files of this folder. */

#include "network/hub.h"
#include "run/pump.h"
#include "run/stage/stage.h"

enum { STAGE_START_MS = 30000 }; /* most time for the set-up of a box */

enum kill_reason { KILL_NONE, KILL_WALL, KILL_CPU, KILL_OUTPUT, KILL_CANCEL, KILL_LATE };

struct stage {
    const struct stage_spec *spec;
    struct stage_result *result;
    struct collect_reader *collected;
    int socket;
    int out_fd, err_fd;
    struct pump_in in;
    struct pump_out sinks[2]; /* by enum run_stream */
    int collect_fd;
    int channel; /* of a copy of a template box; else -1 */
    void *held;  /* the hold on that template box */
    const char *cold_reason;
    struct network_link *link; /* NULL: no network */
    struct network_tally *tally;
    bool started, exited;
    bool collect_broken;
    enum kill_reason kill;
    uint64_t wall_deadline_ns; /* without the time that it waits for approvals */
    uint64_t waited_ns;        /* time that it waited for approvals */
    bool is_waiting;
    uint64_t cpu_check_ns;
    bool cpu_asked;
    uint64_t other_deadline_ns; /* for set-up, collection and the end of a killed box */
    uint64_t stdout_bytes;
    struct spawn_event end;
    bool ended;
    char *chunk; /* CHUNK bytes to read into */
};

/* request.c: asks for the box, with its package and its ends of the streams, or takes a copy of
 * a template box. */
int stage_request(struct stage *st, struct spawner_client *spawner, struct err *err);

/* When the box was a copy that told of a failure before its program began, that is its end. */
void stage_hear_copy(struct stage *st);

/* stage.c: handles an event of the box. */
void stage_on_event(struct stage *st, const struct spawn_event *event);

/* verdict.c: fills in status and limits_hit from the end of the box, when output, usage and
 * network are in the result. Returns an error when Hermes failed. */
int stage_judge(struct stage *st, struct err *err);

/* The error of a box whose program did not start. */
int stage_fail(const struct stage *st, struct err *err);
