# id: X-44
# name: Output that is no text
# group: cpu
# priority: 1
# expect: ok
# control: none
# control-why: about the answer's form, not about a barrier
import os

os.write(1, bytes(range(256)) * 4)
os.write(1, b"\xed\xa0\x80 \xf0\x9f\x98 \xc0\xaf \xf8\x88\x80\x80\x80 \xef\xbf\xbe\n")
os.write(1, b'"}],"status":"ok","exit_code":0}\n{"status":"internal_error"}\n\r\n\r\n')
os.write(2, b"\x1b]0;title\x07\x1b[2J\x1b[?1049h\x90\x00\x9b\n")
os.write(1, b"\ndone\n")
