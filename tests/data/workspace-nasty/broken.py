def heave(rope:
    """Pull."""
    if rope
        return None


class Winch
    def turn(self):
        pass
