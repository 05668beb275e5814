# SPDX-License-Identifier: Apache-2.0
"""An interrupt that comes to the far shell together with the command that it is for."""


def test_an_interrupt_does_not_overtake_its_command(far):
    f = far()
    frames = b"".join(b"%s %d\n%s" % (kind, len(data), data) for kind, data in ((b"exec", b"sleep 1000"), (b"signal", b"2")))
    for _ in range(50):
        f.unconfirmed += frames
        f.write(frames)
        assert f.result().code == 130
    assert f.exec("echo after").out == b"after\n"
