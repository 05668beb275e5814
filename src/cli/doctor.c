/* SPDX-License-Identifier: Apache-2.0 */

/* hermes doctor: tries every feature that a box uses. Prints for each whether it is enforced on
 * this host, why not, and what to do. */

#include "cli/cli.h"

#include "cli/color.h"
#include "cli/options.h"
#include "cli/output.h"
#include "network/entry.h"
#include "run/encode.h"
#include "run/spawner.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct option_row options[] = {
    {"json", 'j', NULL, "print the report, or the error, as JSON"},
    {0},
};

const struct option_table doctor_options = {
    .summary = "check what this host can enforce, and how to fix what is missing",
    .command = "hermes doctor",
    .rows = options,
    .before = "Tries every feature that a box uses. Shows whether this host enforces it, why "
              "not, and how to fix it.",
    .after =
        "Exit status: 0 level `strong` or better; 1 below; 2 wrong usage; 125 when the test "
        "itself failed.",
};

static void take_option(void *json, int key, char *arg)
{
    *(bool *)json = true; /* there is no other option */
}

/* The network modes do not count for the level: without them a host runs code without a
 * network just as safely. */
static void print_network(const struct spawn_reply *reply)
{
    const char *missing;
    unsigned modes = spawner_network_modes(reply, &missing);
    (void)printf("\n  networks of boxes:");
    for (unsigned mode = 0; mode < NETWORK_MODE_COUNT; mode++) {
        if (modes & 1u << mode)
            (void)printf(" %s", network_mode_name(mode));
    }
    (void)printf("\n");
    if (missing[0])
        (void)printf("       why: %s\n       do:  load these modules of the kernel, or use one "
                     "that has them\n",
            missing);
    else if (reply->network_missing[0])
        (void)printf("       without %s\n", reply->network_missing);
}

static void print_report(const struct spawn_reply *reply)
{
    (void)printf("isolation level: %s   (control groups: %s, Landlock ABI %u, %s)\n\n",
        spawner_level_name(reply->level), spawner_cgroup_name(reply->cgroup),
        reply->landlock_abi, geteuid() == 0 ? "root" : "rootless");
    for (unsigned i = 0; i < FEATURE_COUNT; i++) {
        bool on = reply->enforced & 1u << i;
        const char *mark = on ? "yes" : "no ";
        (void)printf("  %s%s%s  %-18s %s\n", color_on(stdout, on ? COLOR_GOOD : COLOR_BAD),
            mark, color_off(stdout), feature_table[i].name, feature_table[i].text);
        if (!on)
            (void)printf("       %-18s why: %s\n       %-18s do:  %s\n", "",
                strerror(-reply->reason[i]), "", feature_table[i].fix);
    }
    print_network(reply);
    if (reply->error)
        (void)printf("\n  cannot %s (%s): %s\n", spawner_step_text(reply->step), reply->detail,
            strerror(-reply->error));
    (void)printf("\n%s\n",
        reply->level >= LEVEL_STRONG
            ? "Hermes runs code here with its default minimum, `strong`."
            : "Below the default minimum `strong`: Hermes runs code here only with a lower "
              "--min-level.");
}

int cmd_doctor(int argc, char **argv)
{
    bool json = false;
    options_parse(&doctor_options, argc, argv, take_option, &json);
    struct spawner_client client;
    struct spawn_reply reply = {0};
    struct err err = {0};
    struct spawn_setup setup = {.kind = SPAWN_SETUP, .protocol = SPAWN_PROTOCOL};
    int r = spawner_start(&client, cli_spawner_path(), &setup, &err);
    if (r == 0)
        r = spawner_probe(&client, &reply, &err);
    spawner_stop(&client);
    if (r < 0)
        return cli_fail("doctor", &err);
    if (json)
        output_json(result_report_json(&reply), 0);
    else
        print_report(&reply);
    return reply.level >= LEVEL_STRONG ? 0 : 1;
}
