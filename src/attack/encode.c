/* SPDX-License-Identifier: Apache-2.0 */

/* Encodes outcomes as the JSON of `hermes selftest --json` and POST /v1/selftest. */

#include "run/encode.h"
#include "attack/run.h"

json_t *attack_json(
    const struct attack_case *c, bool control, const struct attack_outcome *outcome)
{
    static const char *const words[] = {"not_run", "passed", "failed", "skipped"};
    json_t *json = json_pack("{ss ss ss si ss sb ss ss}", "id", c->id, "name", c->name, "group",
        c->group, "priority", (int)c->priority, "language", c->language, "control", control,
        "result", words[outcome->verdict], "why", outcome->why);
    if (outcome->ran) {
        (void)json_object_set_new(
            json, "status", json_string(run_status_name(outcome->status)));
        (void)json_object_set_new(json, "limits_hit", result_hits_json(outcome->limits_hit));
        (void)json_object_set_new(json, "wall_ms", json_real(outcome->usage.wall_ms));
        (void)json_object_set_new(json, "cpu_ms", json_real(outcome->usage.cpu_ms));
        (void)json_object_set_new(
            json, "memory_peak_kb", json_integer((json_int_t)outcome->usage.memory_peak_kb));
    }
    return json;
}
