# kiwi: begin. `kiwi workspace hooks` wrote these lines and renews them; write yours outside of them.
if {condition}command -v kiwi >/dev/null 2>&1; then
  sh -c '
    trap "" HUP
    dir=$(git rev-parse --absolute-git-dir)/kiwi && cd -- "$1" || exit
    [ -d .ai ] && unset $(git rev-parse --local-env-vars) || exit
    case $(kiwi --json workspace stats .) in *"\"documents\": "[1-9]*) ;; *) exit ;; esac
    mkdir -p "$dir" && : >"$dir/again" || exit
    [ ! -e "$dir/lock" ] || kill -0 "$(cat "$dir/lock")" || rm -f "$dir/lock"
    while [ -e "$dir/again" ] && (set -C && echo $$ >"$dir/lock"); do
      rm -f "$dir/again"
      kiwi --quiet workspace index . >"$dir/log" 2>&1
      rm -f "$dir/lock"
    done
  ' kiwi {root} </dev/null >/dev/null 2>&1 &
fi
# kiwi: end
