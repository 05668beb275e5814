/* SPDX-License-Identifier: Apache-2.0 */

/* Rules about effects. The input is a file of rules; whatever is accepted is matched with an
 * effect of every kind, and a rule matches the examples that it carries. */

#include "approval/ruling.h"
#include "json/read.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const effects[] = {
    "{\"kind\":\"tool_call\",\"tool\":\"a.b\",\"arguments\":{\"x\":[1,{\"y\":\"z\"}]}}",
    "{\"kind\":\"net_connect\",\"host\":\"a.example.com\",\"port\":443,\"protocol\":\"tcp\"}",
    "{\"kind\":\"mount_rw\",\"mount\":\"data\",\"path\":\"/mnt/data\"}",
    "{\"kind\":\"secret_use\",\"secret\":\"s\",\"host\":\"example.com\"}",
    "{\"kind\":\"host_exec\",\"backend\":\"ssh\",\"argv\":[\"git\",\"push\"]}",
    "{\"kind\":\"publish\",\"port\":80,\"address\":\"203.0.113.1\"}"};

static void check_examples(const struct rules *rules)
{
    for (size_t i = 0; i < rules->count; i++) {
        const json_t *rule = json_array_get(json_object_get(rules->json, "rules"), i);
        const json_t *examples = json_object_get(json_object_get(rule, "examples"), "match");
        for (size_t k = 0; k < json_array_size(examples); k++) {
            struct effect effect = {0};
            if (effect_make(rules->items[i].kind, json_array_get(examples, k), &effect, NULL) <
                    0 ||
                !rule_matches(&rules->items[i], &effect))
                abort();
            effect_done(&effect);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_problem problem;
    struct rules rules = {0};
    json_t *json = json_read((const char *)data, size, &problem);
    if (!json || rules_read(json, &rules, NULL) < 0) {
        json_decref(json);
        return 0;
    }
    check_examples(&rules);
    for (size_t i = 0; i < sizeof(effects) / sizeof(effects[0]); i++) {
        struct effect effect = {0};
        struct ruling ruling;
        json_t *one = json_loads(effects[i], 0, NULL);
        const struct ruling_facts facts = {.rules = &rules, .mode = APPROVAL_MANUAL};
        if (effect_read(one, &effect, NULL) < 0)
            abort();
        ruling_make(&effect, &facts, &ruling);
        const struct rule *found = rules_find(&rules, &effect);
        if (found && found->decision == RULE_DENY && ruling.kind != RULING_DENIED)
            abort();
        effect_done(&effect);
        json_decref(one);
    }
    rules_done(&rules);
    json_decref(json);
    return 0;
}
