/* SPDX-License-Identifier: Apache-2.0 */

/* See own_command.h. */

#include "cli/session/own_command.h"

#include "cli/session/approvals.h"
#include "cli/session/own_server.h"

#include <errno.h>

static int run_alone(struct own_command *c, struct err *err)
{
    struct own_server own;
    struct consent consent;
    int r = own_server_start(&own, &c->wish, err);
    if (r < 0)
        return r;
    c->client = (struct client){.url = "http://localhost", .unix_path = own.unix_path};
    if (c->session)
        (void)json_object_set_new(c->session, "backend", json_string(own.backend));
    r = c->rules ? approvals_set_rules(&c->client, c->rules, false, err) : 0;
    if (r == 0 && (r = consent_start(&consent, &c->client, c->name, c->is_given, err)) == 0) {
        r = c->run(c->context, &consent, err);
        own_server_stop(&own);
        consent_stop(&consent);
    }
    own_server_stop(&own);
    consent_explain(err);
    return r;
}

int own_command_run(struct own_command *c, struct err *err)
{
    bool is_alone = c->is_wanted || own_server_is_needed(&c->client);
    if (is_alone && c->refusal)
        return err_set(err, ERR_INVALID, EINVAL, "%s", c->refusal);
    if (is_alone)
        return run_alone(c, err);
    if (c->is_given || c->rules)
        return err_set(err, ERR_INVALID, EINVAL,
            "--yes and --rules are for a command without a server; this one asks its own "
            "approvers: `hermes approvals watch`, or add --own-server");
    return c->run(c->context, NULL, err);
}
