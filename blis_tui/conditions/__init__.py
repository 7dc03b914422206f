"""The language of breakpoints, watches and expectations: breakpoints, conditions and figures."""
